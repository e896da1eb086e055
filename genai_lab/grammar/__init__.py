"""Which tokens a grammar allows next: JSON schemas, regular expressions and Lark grammars, on the llguidance library.

Receives the bytes of every token, a grammar's text and the tokens of an answer so far; returns masks over the
vocabulary. It knows no model, no logits and no generator. The library is imported when a grammar is first compiled.
"""

from __future__ import annotations

from genai_lab.grammar.compiler import KINDS, MAX_GRAMMAR_BYTES, GrammarCompiler, TokenTable
from genai_lab.grammar.guide import Guide

__all__ = ["KINDS", "MAX_GRAMMAR_BYTES", "GrammarCompiler", "Guide", "TokenTable"]
