"""Measurements against onnxruntime-genai on the same model folder. `make bench` writes RESULTS.md."""
