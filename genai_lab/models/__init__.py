"""Tokens in, logits out: model folders, ONNX Runtime sessions, inputs and the state of a running decoder."""

from __future__ import annotations

from genai_lab.models.decoder import DecoderState
from genai_lab.models.model import Model

__all__ = ["DecoderState", "Model"]
