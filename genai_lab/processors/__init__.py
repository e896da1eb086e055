"""Preprocess: images and sounds beside text, as far as a workbench for text goes.

Receives file names, bytes and prompts. Files are opened and checked as onnxruntime-genai does; text becomes token ids.
Turning pixels and sound waves into tensors is not here, and says so.
"""

from __future__ import annotations

from genai_lab.processors.media import Audios, Images
from genai_lab.processors.multimodal import MultiModalProcessor
from genai_lab.processors.streaming import StreamingProcessor

__all__ = ["Audios", "Images", "MultiModalProcessor", "StreamingProcessor"]
