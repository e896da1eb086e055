"""What an engine can do, for a caller who wants to know before asking (og class EngineCapabilities, and more)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """Sizes as onnxruntime-genai names them; the rest is ours."""

    configured_max_batch_size: int  # conversations that hold a row at a time
    max_request_length: int  # tokens of a conversation, over all its turns
    max_scheduled_tokens: int  # tokens that one step may compute
    batch_is_exact: bool
    """On this processor a row in a batch gets bit by bit what it gets alone."""
    batch_is_invariant: bool
    """An answer's numbers do not depend on who else is answered at the time."""
    equals_generator: bool
    """Every answer has the bits of a Generator's: batches are exact, or rows run one at a time (`exact=True`)."""
    numerics: str
    """The same in a sentence."""
