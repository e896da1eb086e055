"""Where attention looks for a row's tokens when rows of a batch have different lengths.

Two kinds of graph, and nothing in a graph's inputs tells them apart. One looks at the places that the mask names, so
padding may stand anywhere. The other (GroupQueryAttention) only counts the mask's ones: a row's tokens are the first so
many places of its past, and its new token goes behind them. It is tried once per model.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.models.graph import token_axis
from genai_lab.models.model import Model
from genai_lab.models.session import Arrays, Graph
from genai_lab.models.token_feeds import token_feeds

_known: weakref.WeakKeyDictionary[Model, bool] = weakref.WeakKeyDictionary()


def known_front(model: Model) -> bool | None:
    """The answer for a model that was tried."""
    return _known.get(model)


def counts_from_front(model: Model, graph: Graph, past: Arrays, grown: set[str], others: Arrays) -> bool:
    """Whether the graph counts the mask's ones: one more token is read twice, the second time with an empty place
    between it and the past that the mask does not name.

    Args:
        model, graph: the model, and its graph as one sequence runs it.
        past: what the graph takes of a sequence of two tokens.
        grown: names in it that have a place per token.
        others: inputs that follow from no token.
    """
    room = {name: widened(value, 1, behind=True) if name in grown else value for name, value in past.items()}
    try:
        near = _logits(model.config, graph, past | others, np.ones((1, 3), bool))
        far = _logits(model.config, graph, room | others, np.array([[True, True, True, False]]))
    except Exception:  # a graph that cannot be run so does not count
        near, far = np.zeros(1), np.ones(1)
    _known[model] = bool(near.shape == far.shape and np.allclose(near, far, rtol=1e-3, atol=1e-3 * np.ptp(near)))
    return _known[model]


def widened(past: NDArray[Any], count: int, *, behind: bool) -> NDArray[Any]:
    """A past with `count` more places of zeros, behind its tokens or in front of them."""
    axis = token_axis(past.shape)
    more = (0, count) if behind else (count, 0)
    return np.pad(past, [more if n == axis else (0, 0) for n in range(past.ndim)])


def _logits(config: Config, graph: Graph, feeds: Arrays, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    quiet = ort.RunOptions()
    quiet.log_severity_level = 4  # a failure is an answer here, not an error
    ids = np.array([[min(1, config.model.vocab_size - 1)]], np.int32)
    outputs = graph.run(feeds | token_feeds(graph, config, ids, mask), quiet, is_prompt=False)
    return outputs[config.model.decoder.outputs.logits].astype(np.float64)
