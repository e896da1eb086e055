"""Tokens in, logits out: model folders, ONNX Runtime sessions, inputs and the state of a running decoder."""

from __future__ import annotations

from genai_lab.models.adapters import Adapters
from genai_lab.models.decoder import DecoderState
from genai_lab.models.extras import RunExtras
from genai_lab.models.model import Model
from genai_lab.models.states import ManyRows, OneRow, make_one, make_rows

__all__ = ["Adapters", "DecoderState", "ManyRows", "Model", "OneRow", "RunExtras", "make_one", "make_rows"]
