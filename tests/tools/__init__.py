"""Tests of the gate: each part must see what it is there for."""
