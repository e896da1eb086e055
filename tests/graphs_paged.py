"""A tiny decoder whose graph reads its cache through block tables, of plain operators, so that it runs on a CPU. With
one seed it has the weights of `tests.graphs.plain_decoder`, so that its answers are those of a Generator on that one.

    folder = paged_decoder(tmp_path / "paged")                      # one row of logits per sequence
    folder = paged_decoder(tmp_path / "every", logits="tokens")     # one per token, so that proposals can be verified
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.graphs import HEAD_SIZE, HEADS, HIDDEN, POSITIONS, VOCABULARY, Graph
from tests.graphs_stages import FLOAT, INT32, INT64, Signature, save

LAYER_IDS = (0, 1)


def paged_decoder(
    path: Path,
    *,
    logits: str = "sequences",
    sizes: tuple[int, int] | None = (32, 4),
    engine: dict[str, Any] | None = None,
    kind: int = FLOAT,
    layer_ids: Sequence[int] = LAYER_IDS,
    planes: int | None = None,
    window: int | None = None,
    ring_blocks: int | str | None = None,
    chunk: int | None = None,
    state: bool = False,
    extra_input: str | None = None,
    seed: int = 0,
) -> Path:
    """Write a model folder at `path` and return it.

    Args:
        logits: rows of them, one for each of "sequences", "tokens", or "selected" tokens.
        sizes: blocks and tokens per block that the graph states; None leaves them open.
        engine: keys of engine.dynamic_batching.
        kind: element type of the cache.
        layer_ids: numbers of the layers that have a cache.
        window: tokens that the last layer sees.
        ring_blocks: blocks of that layer's rings, a number or a name; None: its blocks are those of the pool.
        chunk: search.chunk_size.
        state: a state [2] beside the blocks, the sum and the number of the tokens read so far, moves the logits.
        planes: rows of an input position_ids; 0 for one without rows, None for none.
        extra_input: an input that no engine knows.
    """
    path.mkdir(parents=True)
    g = Graph(seed)
    place = _places(g)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=8.0), "input_ids")
    at = place["pos"] if planes is None else "position_ids"
    if planes:
        at = g.op("Gather", "position_ids", g.constant(planes - 1), axis=0)
    x = g.op("Add", x, g.op("Gather", g.weight(POSITIONS, HIDDEN, gain=4.0), at))  # [T, hidden]
    for layer in layer_ids:
        last = layer == layer_ids[-1]
        table = "block_table_windowed" if last and ring_blocks is not None else "block_table"
        x = g.op("Add", x, _attention(g, x, place, layer, kind, table, window if last else None))
        x = g.op("Add", x, g.op("Tanh", g.op("MatMul", x, g.weight(HIDDEN, HIDDEN, gain=2.0))))
    ends = g.op("Sub", place["ends"], g.constant(1))
    if state:
        x = g.op("Add", x, _state(g, place))
    if logits != "tokens":
        x = g.op("Gather", x, ends if logits == "sequences" else "logits_indices", axis=0)
    if extra_input is not None:
        x = g.op("Add", x, extra_input)
    g.op("MatMul", x, g.weight(HIDDEN, VOCABULARY, gain=4.0), name="logits")
    counts: list[Any] = ["num_blocks", "block_size"] if sizes is None else list(sizes)
    inputs: Signature = [
        ("input_ids", INT64, ["num_tokens"]),
        ("cumulative_sequence_lengths", INT32, ["batch_plus_1"]),
        ("past_sequence_lengths", INT32, ["batch"]),
        ("block_table", INT32, ["batch", "max_blocks"]),
        ("attention_metadata", INT32, [3]),
    ]
    outputs: Signature = [("logits", FLOAT, [{"sequences": "batch_size"}.get(logits, "rows"), VOCABULARY])]
    if logits == "selected":
        inputs.append(("logits_indices", INT32, ["rows"]))
    if planes is not None:
        inputs.append(("position_ids", INT64, [planes, "num_tokens"] if planes else ["num_tokens"]))
    if extra_input is not None:
        inputs.append((extra_input, FLOAT, [1]))
    if ring_blocks is not None:
        inputs.append(("block_table_windowed", INT32, ["batch", "max_blocks"]))
    if state:
        inputs.append(("past_key_values.2.recurrent_state", FLOAT, ["batch", 2]))
        outputs.append(("present.2.recurrent_state", FLOAT, ["batch", 2]))
        inputs.append(("state_update_capture_count", INT32, ["batch"]))
    for layer in layer_ids:
        if layer == layer_ids[-1] and ring_blocks is not None:
            counts = [ring_blocks, counts[1]]
        for part in ("key", "value"):
            inputs.append((f"past_key_values.{layer}.{part}", kind, [*counts, HEADS, HEAD_SIZE]))
            outputs.append((f"present.{layer}.{part}", kind, [*counts, HEADS, HEAD_SIZE]))
    save(path, "model", g, inputs, outputs)
    decoder: dict[str, Any] = {
        "filename": "model.onnx",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "num_hidden_layers": max(layer_ids) + 1 + state,
        "head_size": HEAD_SIZE,
        "inputs": {"logits_indices": "logits_indices"} if logits == "selected" else {},
        "state_groups": [{"kind": "paged_kv", "layer_ids": list(layer_ids)}],
    }
    if ring_blocks is not None:
        slides = {"slide_key_value_cache": False, "slide_inputs": False}
        decoder["sliding_window"] = {"window_size": window, "layers": [layer_ids[-1]], **slides}
        del decoder["state_groups"]  # onnxruntime-genai takes layers of one size only in such a group
    elif state:
        decoder["state_groups"].append({"kind": "fixed_recurrent", "layer_ids": [2]})
    blocks = {} if sizes is None else {"num_blocks": sizes[0], "block_size": sizes[1]}
    model = {"type": "decoder", "bos_token_id": 1, "pad_token_id": 0, "eos_token_id": 1, "decoder": decoder}
    config = {
        "model": model | {"vocab_size": VOCABULARY, "context_length": POSITIONS},
        "search": {"max_length": POSITIONS, "top_k": 20} | ({} if chunk is None else {"chunk_size": chunk}),
        "engine": {"dynamic_batching": {"max_batch_size": 4} | blocks | (engine or {})},
    }
    (path / "genai_config.json").write_text(json.dumps(config))
    return path


def _places(g: Graph) -> dict[str, str]:
    """Where each packed token stands: its sequence [T], its place there [T], and where sequences end [B]."""
    tokens = g.op("Squeeze", g.op("Shape", "input_ids"))
    index = g.op("Range", g.constant(0), tokens, g.constant(1))  # [T]
    bounds = g.op("Cast", "cumulative_sequence_lengths", to=INT64)
    ends = g.op("Slice", bounds, g.constant([1]), g.constant([2**31]), g.constant([0]))
    past_end = g.op(
        "GreaterOrEqual", g.op("Unsqueeze", index, g.constant([1])), g.op("Unsqueeze", ends, g.constant([0]))
    )
    row = g.op("ReduceSum", g.op("Cast", past_end, to=INT64), g.constant([1]), keepdims=0)
    past = g.op("Gather", g.op("Cast", "past_sequence_lengths", to=INT64), row)
    pos = g.op("Add", past, g.op("Sub", index, g.op("Gather", bounds, row)))
    return {"row": row, "pos": pos, "ends": ends}


def _slots(g: Graph, place: dict[str, str], pool: str, table: str) -> tuple[str, str]:
    """Slots of the pool: that of each new token [T, 1], and those of each sequence's blocks [B, L]."""
    size = g.op("Gather", g.op("Shape", pool), g.constant(1))
    blocks = g.op("Max", g.op("Cast", table, to=INT64), g.constant(0))  # -1 behind the last block
    first = g.op("Mul", blocks, size)
    column = g.op("Div", place["pos"], size)
    both = [g.op("Unsqueeze", each, g.constant([1])) for each in (place["row"], column)]
    inside = g.op("Sub", place["pos"], g.op("Mul", column, size))
    new = g.op("Add", g.op("GatherND", first, g.op("Concat", *both, axis=1)), inside)
    places = g.op("Range", g.constant(0), size, g.constant(1))
    all_ = g.op("Add", g.op("Unsqueeze", first, g.constant([2])), places)  # [B, M, block_size]
    return g.op("Unsqueeze", new, g.constant([1])), g.op("Flatten", all_, axis=1)


def _state(g: Graph, place: dict[str, str]) -> str:
    """[T, hidden]: from the sum and the number of the tokens up to each, over all runs; what is left at each end."""
    token = g.op("Cast", "input_ids", to=FLOAT)
    both = g.op(
        "Concat",
        *(
            g.op("Unsqueeze", v, g.constant([1]))
            for v in (token, g.op("Add", g.op("Mul", token, g.constant(0.0, np.float32)), g.constant(1.0, np.float32)))
        ),
        axis=1,
    )  # [T, 2]
    sums = g.op("CumSum", both, g.constant(0))
    zero = g.op("Pad", sums, g.constant([1, 0, 0, 0]))  # [T + 1, 2]
    bounds = g.op("Cast", "cumulative_sequence_lengths", to=INT64)
    before = g.op("Gather", zero, g.op("Gather", bounds, place["row"]), axis=0)
    past = g.op("Gather", "past_key_values.2.recurrent_state", place["row"], axis=0)
    now = g.op("Add", past, g.op("Sub", sums, before))  # [T, 2]
    g.op("Gather", now, g.op("Sub", place["ends"], g.constant(1)), axis=0, name="present.2.recurrent_state")
    return g.op("MatMul", g.op("Sin", now), g.weight(2, HIDDEN, gain=3.0))


def _attention(g: Graph, x: str, place: dict[str, str], layer: int, kind: int, table: str, window: int | None) -> str:
    def heads() -> str:  # [T, heads, head_size]
        flat = g.op("MatMul", x, g.weight(HIDDEN, HEADS * HEAD_SIZE, gain=2.0))
        return g.op("Reshape", flat, g.constant([0, HEADS, HEAD_SIZE]))

    queries, *new = heads(), heads(), heads()
    written, read = _slots(g, place, f"past_key_values.{layer}.key", table)
    seen = []
    for part, values in zip(("key", "value"), new, strict=True):
        past = f"past_key_values.{layer}.{part}"
        slots = g.op("Reshape", past, g.constant([-1, HEADS, HEAD_SIZE]))
        present = g.op("ScatterND", slots, written, g.op("Cast", values, to=kind))
        g.op("Reshape", present, g.op("Shape", past), name=f"present.{layer}.{part}")
        every = g.op("Gather", g.op("Gather", present, read), place["row"])  # [T, L, heads, head_size]
        seen.append(g.op("Cast", g.op("Transpose", every, perm=[0, 2, 1, 3]), to=FLOAT))
    scores = g.op("MatMul", g.op("Unsqueeze", queries, g.constant([2])), g.op("Transpose", seen[0], perm=[0, 1, 3, 2]))
    scaled = g.op("Mul", scores, g.constant(HEAD_SIZE**-0.5, np.float32))  # [T, heads, 1, L]
    length = g.op("Gather", g.op("Shape", read), g.constant(1))
    columns = g.op("Range", g.constant(0), length, g.constant(1))
    here = g.op("Unsqueeze", place["pos"], g.constant([1, 2, 3]))
    allowed = g.op("LessOrEqual", columns, here)
    if window is not None:
        oldest = g.op("Sub", here, g.constant(window - 1))
        allowed = g.op("And", allowed, g.op("GreaterOrEqual", columns, oldest))
    weights = g.op("Softmax", g.op("Where", allowed, scaled, g.constant(-1e4, np.float32)), axis=-1)
    # a slot that nobody wrote may hold anything, and 0 times that is not always 0
    real = g.op("Where", g.op("Transpose", allowed, perm=[0, 1, 3, 2]), seen[1], g.constant(0.0, np.float32))
    mixed = g.op("MatMul", weights, real)
    return g.op("MatMul", g.op("Reshape", mixed, g.constant([0, HEADS * HEAD_SIZE])), g.weight(HIDDEN, HIDDEN))


FLOAT16 = TensorProto.FLOAT16


def add_tokenizer(folder: Path) -> None:
    """Texts for the 40 tokens: letters, pieces of several letters, the two halves of an é; 0 and 1 are marks."""
    pieces = [*"abcdefghijklmnopqrstuvwxyz", "ab", "st", "op", "stop", "xyz", "Ġ", "Ġa", "Ã", "©", "no", "yes", "."]
    vocabulary = {piece: number for number, piece in enumerate(["<pad>", "<eos>", *pieces])}
    marks = [
        {"id": i, "content": name, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False} for i, name in enumerate(("<pad>", "<eos>"))
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model: dict[str, Any] = {"type": "BPE", "vocab": vocabulary, "merges": [], "dropout": None, "unk_token": None,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False}  # fmt: skip
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": marks, "normalizer": None,
                 "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {"eos_token": "<eos>", "pad_token": "<pad>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    decoder = {str(mark.pop("id")): mark for mark in marks}
    config = {"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": decoder}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | config))
