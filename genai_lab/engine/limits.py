"""How large an engine is: from arguments, else from the model folder's engine section, else defaults that fit a
laptop."""

from __future__ import annotations

from dataclasses import dataclass

from genai_lab.config import Config
from genai_lab.errors import ArgumentError
from genai_lab.kinds import whole

DEFAULT_BATCH = 8
DEFAULT_BLOCK_SIZE = 16
DEFAULT_SESSION_TOKENS = 2048
DEFAULT_POOL_TOKENS = 8192
DEFAULT_SCHEDULED_TOKENS = 512
DEFAULT_CHUNK = 128
ALLOWED = "an int, or None for the default"


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes of an engine."""

    max_batch_size: int  # rows
    max_scheduled_tokens: int  # tokens computed in a step
    max_session_tokens: int  # tokens of a request, over all turns
    block_size: int  # tokens of a block
    num_blocks: int
    chunk_size: int  # largest prompt chunk of one request in a step
    smallest_piece: int = 2  # tokens that a piece of a prompt has at least: see `policies.chunk_tokens`
    marks_answers: bool = True  # what was generated is not shared with prompts: it has other numbers


def engine_limits(config: Config, given: dict[str, int | None], *, packed: bool = False) -> EngineLimits:
    """Limits from `given` (None: not given), the config, and defaults.

    Args:
        packed: one run reads prompts and answers alike, so a prompt may be read in pieces of one token, and what was
            generated is shared like what was asked.
    """
    for name, value in given.items():
        if value is not None and not 1 <= whole(f"Engine: {name}", value, ALLOWED) < 2**31:
            raise ArgumentError(
                f"Engine: {name} is {value!r:.60}; a whole number (int) from 1 to {2**31 - 1} is allowed"
            )
    given = {name: None if value is None else int(value) for name, value in given.items()}
    context = config.model.context_length
    session = min(context, given["max_session_tokens"] or DEFAULT_SESSION_TOKENS)
    block_size = given["block_size"] or DEFAULT_BLOCK_SIZE
    values = {
        "max_batch_size": given["max_batch_size"] or _configured_batch(config) or DEFAULT_BATCH,
        "max_scheduled_tokens": given["max_scheduled_tokens"] or DEFAULT_SCHEDULED_TOKENS,
        "max_session_tokens": session,
        "block_size": block_size,
        "num_blocks": given["num_blocks"] or max(1, max(DEFAULT_POOL_TOKENS, session) // block_size),
        "chunk_size": given["chunk_size"] or DEFAULT_CHUNK,
    }
    least = 1 if packed else 3  # three tokens are not two pieces of two or more
    for name in ("max_scheduled_tokens", "chunk_size"):
        if values[name] < least:
            raise ArgumentError(
                f"Engine: {name} is {values[name]}; a whole number of at least {least} is allowed: prompts "
                "are read in pieces, no piece of a prompt has one token alone (it would take another numeric path), so "
                f"a prompt of three must be one piece. Set {name}={least} or more, or leave it out"
            )
    return EngineLimits(**values, smallest_piece=1 if packed else 2, marks_answers=not packed)


def _configured_batch(config: Config) -> int | None:
    sections = (config.engine.dynamic_batching, config.engine.static_batching)
    sizes = [getattr(section, "max_batch_size", None) for section in sections if section is not None]
    return next((size for size in sizes if size), None)
