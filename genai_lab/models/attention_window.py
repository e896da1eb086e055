"""How far back a model's attention sees: what its config says, tried once.

Receives a loaded model. Returns the window of local attention, or None when any layer sees everything. A config may
speak of layers that slide beside others that do not, or of a cache that somebody else slides; so it is believed only
when keys and values before the window, however large, change no bit of the logits.
"""

from __future__ import annotations

import weakref

import numpy as np

from genai_lab.kvcache.untouched import untouched_zeros
from genai_lab.models.model import Model
from genai_lab.models.rows import RowsExecutor

SPOILT = 8  # tokens before the window that are tried
LARGE = 100.0

_known: weakref.WeakKeyDictionary[Model, int | None] = weakref.WeakKeyDictionary()


def attention_window(model: Model) -> int | None:
    """Tokens that a token sees, itself included, in every layer; None: all before it. The first call for a model whose
    config speaks of a window (model.decoder.sliding_window) runs two decodes."""
    if model not in _known:
        stated = _stated(model)
        _known[model] = stated if stated is not None and _is_local(model, stated) else None
    return _known[model]


def _stated(model: Model) -> int | None:
    section = model.config.model.decoder.sliding_window
    tokens = None if section is None else section.get("window_size")
    longest = model.config.model.context_length - SPOILT
    return tokens if isinstance(tokens, int) and 2 <= tokens < longest and model.appends_in_place else None


def _is_local(model: Model, window: int) -> bool:
    layout, cached = model.kv_layout, SPOILT + window - 1  # the token after those sees the last window - 1, and itself
    shape = (layout.num_layers, 2, *layout.row_shape(1, cached + 1))
    executor = RowsExecutor(model, untouched_zeros(shape, layout.numpy_dtype))
    token, place = np.zeros(1, np.int32), np.array([cached])
    clean = executor.decode(0, token, place).tobytes()
    executor.slab[..., :SPOILT, :] = LARGE
    return executor.decode(0, token, place).tobytes() == clean
