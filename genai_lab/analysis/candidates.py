"""The candidates of one token, before and after each processor and filter, as one frame.

Works from what was recorded: the 64 best logits exactly, a histogram of the others, what each processor changed, and
how many candidates each filter left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError
from genai_lab.tracing import Recording
from genai_lab.tracing.texts import names_of, pending_before

_FORBIDDEN_BELOW = -1e37  # a logit below this was forbidden by a processor


def candidate_frame(recording: Recording, row: int) -> pd.DataFrame:
    """One row per recorded candidate of token `row` of the tokens table, most likely first.

    Columns: rank, token, text, logit, prob (the model's own), after_<processor> (logit), temperature, top_k, top_p,
    min_p (probability after each; NaN once cut), chosen. Rank 0: a less likely token that the guidance allowed or a
    processor lifted; its rank is not known, except the chosen one's, which the tokens table has. The text of one that
    is only part of a character says so.
    """
    tokens = recording.tokens
    if not 0 <= row < len(tokens["token"]):
        raise ArgumentError(f"row {row} is not in the trace; allowed is 0 to {len(tokens['token']) - 1}")
    valid = np.isfinite(tokens["top_logits"][row])
    ids, logits = tokens["top_ids"][row][valid], tokens["top_logits"][row][valid].astype(np.float64)
    prob = np.exp(logits - logits[0] - tokens["log_z"][row])
    rank = np.arange(1, ids.size + 1)
    rank[int(tokens["exact"][row]) :] = 0
    frame = pd.DataFrame({"rank": rank, "token": ids})
    names, pending = names_of(recording), pending_before(recording, row)
    frame["text"] = pd.Series([names.alone(int(i), pending) for i in ids], dtype="str")
    frame["logit"], frame["prob"] = logits, prob
    scores = _apply_changes(recording, row, ids, logits, frame)
    _apply_filters(recording, row, scores, frame)
    frame["chosen"] = ids == tokens["token"][row]
    return frame


def _apply_changes(
    recording: Recording, row: int, ids: NDArray[Any], logits: NDArray[np.float64], frame: pd.DataFrame
) -> NDArray[np.float64]:
    """Adds a column per processor that ran; returns the logits after the last."""
    changed, scores = recording.tables["changed"], logits.copy()
    here = changed["row"] == row + recording.dropped["tokens"]
    position = {int(token): slot for slot, token in enumerate(ids)}
    for by in dict.fromkeys(changed["by"][here].tolist()):
        mine = here & (changed["by"] == by)
        for token, logit in zip(changed["id"][mine], changed["logit"][mine], strict=True):
            if int(token) in position:
                scores[position[int(token)]] = logit
        frame[f"after_{recording.processor_names[by]}"] = scores
    return scores


def _apply_filters(recording: Recording, row: int, scores: NDArray[np.float64], frame: pd.DataFrame) -> None:
    """Adds temperature, top_k, top_p, min_p: probabilities renormalised over what each leaves."""
    tokens = recording.tokens
    settings = recording.runs[int(tokens["run"][row])].settings
    greedy = settings.get("mode") == "greedy"
    temperature = 1.0 if greedy else float(settings.get("temperature", 1.0))
    weights = np.exp((scores - scores.max()) / temperature)
    order = np.argsort(-weights, kind="stable")
    tail = _tail_weight(recording, row, float(scores.max()), temperature) * _allowed_share(
        recording, row, scores, frame
    )
    frame["temperature"] = weights / (weights.sum() + tail)
    for name, kept in zip(("top_k", "top_p", "min_p"), tokens["kept"][row].tolist(), strict=True):
        left = np.full(weights.size, np.nan)
        best = order[: min(kept, weights.size)]
        rest = tail if kept > weights.size else 0.0
        left[best] = weights[best] / (weights[best].sum() + rest)
        frame[name] = left


def _allowed_share(recording: Recording, row: int, scores: NDArray[np.float64], frame: pd.DataFrame) -> float:
    """The share of the unrecorded tokens' probability that guidance left; 1 without guidance."""
    tokens = recording.tokens
    allowed, mass = int(tokens["allowed"][row]), float(tokens["allowed_mass"][row])
    if allowed == 0:
        return 1.0
    shown, prob = scores > _FORBIDDEN_BELOW, frame["prob"].to_numpy()
    tail = 1.0 - float(prob.sum())
    if allowed <= int(shown.sum()) or tail <= 0.0:
        return 0.0
    return float(np.clip((mass - prob[shown].sum()) / tail, 0.0, 1.0))


def _tail_weight(recording: Recording, row: int, highest: float, temperature: float) -> float:
    """Sum of exp((logit - highest) / temperature) over the tokens outside the recorded candidates, from the
    histogram."""
    tokens = recording.tokens
    count = tokens["tail_count"][row].astype(np.float64)
    lo, hi = float(tokens["tail_lo"][row]), float(tokens["tail_hi"][row])
    width = (hi - lo) / count.size
    centres = lo + (np.arange(count.size) + 0.5) * width  # deltas from the highest raw logit
    raw_highest = float(tokens["top_logits"][row, 0])
    return float(np.sum(count * np.exp((raw_highest - centres - highest) / temperature)))
