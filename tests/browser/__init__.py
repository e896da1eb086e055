"""Tests that drive headless Chromium: pages from files, and real JupyterLab."""
