"""A switch for onnxruntime-genai's quiet rules where genai_lab chose clearer ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from genai_lab.once import once

_og_compat: ContextVar[bool] = ContextVar("genai_lab_og_compat", default=False)


@once
def og_compat() -> Iterator[None]:
    """Generators made inside the block follow onnxruntime-genai 0.18 where it differs from us.

    Two rules: `do_sample=True` with `top_k=0` and `top_p=0` is argmax there and samples from the whole distribution
    here; and after `rewind_to(n)` the token that stood at n is put back there before the next token or logits, so that
    the first `generate_next_token` makes two tokens, while here the token at n is chosen anew.

    >>> with og_compat():
    ...     in_og_compat()
    True
    """
    with _rules(True):
        yield


@once
def own_rules() -> Iterator[None]:
    """Generators made inside the block follow our rules, wherever the block stands: those that a picture goes on with.

    >>> with og_compat(), own_rules():
    ...     in_og_compat()
    False
    """
    with _rules(False):
        yield


@contextmanager
def _rules(compatible: bool) -> Iterator[None]:
    token = _og_compat.set(compatible)
    try:
        yield
    finally:
        _og_compat.reset(token)


def in_og_compat() -> bool:
    """Whether the caller is inside `with og_compat()`."""
    return _og_compat.get()
