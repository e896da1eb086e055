"""The Generators path: the caller holds the loop. og's names `GeneratorParams`, `Generator`,
`MtpGenerator`, `Tokenizer`."""

from __future__ import annotations

from genai_lab.generation.compat import in_og_compat, og_compat, own_rules
from genai_lab.generation.generator import Generator
from genai_lab.generation.mtp import MtpGenerator
from genai_lab.generation.params import GeneratorParams
from genai_lab.generation.tokenizer import Tokenizer, TokenizerStream

__all__ = [
    "Generator",
    "GeneratorParams",
    "MtpGenerator",
    "Tokenizer",
    "TokenizerStream",
    "in_og_compat",
    "og_compat",
    "own_rules",
]
