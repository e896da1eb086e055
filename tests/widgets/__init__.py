"""Tests of what the browser is sent and of what it shows without a kernel."""
