"""The tests mirror the rooms. What a test needs is made by the test or lies beside it."""
