"""Tiny models that see and hear: a graph for images, perhaps one for sounds, an embedding, a decoder. Random weights;
every logit depends on every pixel before it, and on its place in the text.

    folder = seeing(tmp_path / "phi", "phi3v")                      # images stand in the prompt as -1, -2, ...
    folder = seeing(tmp_path / "qwen", "qwen2_5_vl")                # places of three numbers
    folder = seeing(tmp_path / "both", "phi4mm", hears=True)
    inputs = picture_inputs(library, "phi3v", [1.0, 2.0])           # a prompt with two images, as a processor makes it
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tests.graphs import HIDDEN, VOCABULARY, Graph
from tests.graphs_stages import FLOAT, INT32, INT64, Signature, save, write_config

IMAGE, SOUND, START, END, VIDEO = 38, 37, 36, 35, 39
CHANNELS, MELS = 3, 4
QWEN = ("qwen2_5_vl", "qwen3_vl")
CACHE = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
PRESENT = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}


def seeing(
    path: Path,
    model_type: str = "phi3v",
    *,
    sees: bool = True,
    hears: bool = False,
    clips: bool = False,
    one_image: bool = False,
    merge: int = 1,
    fails_below_zero: bool = False,
    names: dict[str, str] | None = None,
    seed: int = 0,
    **search: Any,
) -> Path:
    """Write a model folder at `path` and return it.

    Args:
        model_type: of genai_config.json; how images are given follows from it.
        sees, hears: there is a graph for images, and one for sounds.
        clips: it takes one sound at a time, and its length.
        one_image: the graph of a Qwen-VL model takes the grid of one image only.
        merge: patches along one side of a token (Qwen-VL).
        fails_below_zero: the graph for images fails where a pixel is negative.
        names: {what: another name} of the image graph's inputs.
        search: more of genai_config.json's search section.
    """
    path.mkdir(parents=True)
    called = {"pixel_values": "pixel_values", "image_sizes": "image_sizes", "image_grid_thw": "image_grid_thw"}
    if model_type == "gemma4":
        called = {"pixel_values": "pixel_values", "pixel_position_ids": "pixel_position_ids"}
    called |= names or {}
    if sees:
        _vision(path, model_type, called, one_image, merge, fails_below_zero, seed)
    if hears:
        _speech(path, clips, seed + 1)
    _embedding(path, sees, hears, seed + 2)
    three = model_type in QWEN
    _decoder(path, three, seed + 3)
    features = [*(["image_features"] if sees else []), *(["audio_features"] if hears else [])]
    model: dict[str, Any] = {
        "type": model_type,
        "image_token_id": IMAGE,
        "audio_token_id": SOUND,
        "vision_start_token_id": START,
        "video_token_id": VIDEO,
        "vision": {
            "filename": "vision.onnx",
            "patch_size": 1,
            "spatial_merge_size": merge,
            "inputs": called,
            "outputs": {"image_features": "image_features"},
        },
        "embedding": {
            "filename": "embedding.onnx",
            "inputs": {name: name for name in ("input_ids", *features)},
            "outputs": {"inputs_embeds": "inputs_embeds"},
        },
        "decoder": {
            "filename": "decoder.onnx",
            "hidden_size": HIDDEN,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
            "head_size": HIDDEN,
            "inputs": CACHE | {n: n for n in ("inputs_embeds", "attention_mask", "position_ids")},
            "outputs": PRESENT | {"logits": "logits"},
        },
    }
    if not sees:
        del model["vision"]
    if hears:
        taken = {name: name for name in ("audio_embeds", "audio_sizes", *(["audio_lengths"] if clips else []))}
        model["speech"] = {
            "filename": "speech.onnx",
            "inputs": taken,
            "outputs": {"audio_features": "audio_features"},
        }
    return write_config(path, model, past_present_share_buffer=False, **search)


def _vision(path: Path, kind: str, names: dict[str, str], one_image: bool, merge: int, fails: bool, seed: int) -> None:
    """One feature for each patch (Qwen-VL, `merge` x `merge` of them), pixel (Mistral 3) or image (the others)."""
    g = Graph(seed)
    pixels = names["pixel_values"]
    x, beside = pixels, list[tuple[str, int, list[Any]]]()
    if kind in QWEN:
        inputs: Signature = [(pixels, FLOAT, ["P", CHANNELS])]
        beside = [(names["image_grid_thw"], INT64, [1 if one_image else "I", 3])]
        if merge > 1:
            folded = g.op("Reshape", x, g.constant([-1, merge * merge, CHANNELS]))
            x = g.op("ReduceMean", folded, axes=[1], keepdims=0)
    elif kind == "mistral3":
        inputs = [(pixels, FLOAT, ["I", CHANNELS, "H", "W"])]
        x = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 3, 1]), g.constant([-1, CHANNELS]))
    elif kind == "gemma4":  # patches side by side, and where each is
        inputs = [(pixels, FLOAT, ["I", "P", CHANNELS])]
        beside = [("pixel_position_ids", INT64, ["I", "P", 2])]
        x = g.op("Reshape", x, g.constant([-1, CHANNELS]))
    else:
        inputs = [(pixels, FLOAT, ["I", 1, CHANNELS, 1, 1] if kind == "phi3v" else ["I", CHANNELS, 1, 1])]
        x = g.op("Reshape", x, g.constant([-1, CHANNELS]))
        beside = [(names["image_sizes"], INT64, ["I", 2])]
    for name, _kind, _shape in beside:
        nothing = g.op("Mul", g.op("ReduceSum", g.op("Cast", name, to=FLOAT), keepdims=0), g.constant(0.0, np.float32))
        x = g.op("Add", x, nothing)
    if fails:
        worst = g.op("ReduceMin", pixels, keepdims=0)
        bad = g.op("Cast", g.op("Less", worst, g.constant(0.0, np.float32)), to=INT64)
        x = g.op("Add", x, g.op("Gather", g.constant([0.0], np.float32), bad))
    g.op("Tanh", g.op("MatMul", x, g.weight(CHANNELS, HIDDEN, gain=0.5)), name="image_features")
    save(path, "vision", g, inputs + beside, [("image_features", FLOAT, ["N", HIDDEN])])


def _speech(path: Path, clips: bool, seed: int) -> None:
    """One feature for every frame."""
    g = Graph(seed)
    x = "audio_embeds"
    inputs: Signature = [(x, FLOAT, [1 if clips else "C", "F", MELS])]
    if clips:
        inputs.append(("audio_lengths", INT64, [1]))
        x = g.op("Add", x, g.op("Sin", g.op("Cast", "audio_lengths", to=FLOAT)))
    g.op("Tanh", g.op("MatMul", x, g.weight(MELS, HIDDEN, gain=0.5)), name="audio_features")
    save(path, "speech", g, inputs, [("audio_features", FLOAT, ["C", "F", HIDDEN])])


def _embedding(path: Path, sees: bool, hears: bool, seed: int) -> None:
    """Rows of a table; features where the prompt has places for them, in their order."""
    g = Graph(seed)
    zero = g.constant(0, np.int32)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN), g.op("Max", "input_ids", zero))
    image = g.constant(IMAGE, np.int32)
    places = {"image_features": g.op("Or", g.op("Less", "input_ids", zero), g.op("Equal", "input_ids", image))}
    if not sees:
        del places["image_features"]
    if hears:
        places["audio_features"] = g.op("Equal", "input_ids", g.constant(SOUND, np.int32))
    for name, here in places.items():
        index = g.op("Mul", g.op("CumSum", g.op("Cast", here, to=INT32), g.constant(1)), g.op("Cast", here, to=INT32))
        rows = g.op("Concat", g.constant(np.zeros((1, HIDDEN)), np.float32), name, axis=0)
        x = g.op("Where", g.op("Unsqueeze", here, g.constant([2])), g.op("Gather", rows, index), x)
    g.op("Identity", x, name="inputs_embeds")
    inputs: Signature = [("input_ids", INT32, ["B", "S"])]
    inputs += [(name, FLOAT, ["N" + name, HIDDEN]) for name in places]
    save(path, "embedding", g, inputs, [("inputs_embeds", FLOAT, ["B", "S", HIDDEN])])


def _decoder(path: Path, three: bool, seed: int) -> None:
    """One layer of causal attention; a token's place, or the three numbers of it, are added to its embedding."""
    g = Graph(seed)
    places = g.op("Cast", "position_ids", to=FLOAT)
    if three:
        weighed = g.op("Mul", places, g.constant([[[1.0]], [[0.31]], [[0.17]]], np.float32))
        places = g.op("ReduceSum", weighed, g.constant([0]), keepdims=0)
    x = g.op("Add", "inputs_embeds", g.op("Sin", g.op("Unsqueeze", places, g.constant([2]))))
    new = g.op("Gather", g.op("Shape", "inputs_embeds"), g.constant(1))
    total = g.op("Gather", g.op("Shape", "attention_mask"), g.constant(1))
    columns = g.op("Unsqueeze", g.op("Range", g.constant(0), total, g.constant(1)), g.constant([0]))
    rows = g.op("Unsqueeze", g.op("Range", g.op("Sub", total, new), total, g.constant(1)), g.constant([1]))
    real = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.BOOL), g.constant([1, 2]))  # [B, 1, 1, T]
    seen = g.op("And", g.op("LessOrEqual", columns, rows), real)
    bias = g.op("Where", seen, g.constant(0.0, np.float32), g.constant(-1e4, np.float32))
    grown = []
    inputs: Signature = [
        ("inputs_embeds", FLOAT, ["B", "S", HIDDEN]),
        ("attention_mask", INT64, ["B", "T"]),
        ("position_ids", INT64, [3, "B", "S"] if three else ["B", "S"]),
    ]
    outputs: Signature = [("logits", FLOAT, ["B", "S", VOCABULARY])]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        made = g.op("Unsqueeze", g.op("MatMul", x, g.weight(HIDDEN, HIDDEN)), g.constant([1]))
        grown.append(g.op("Concat", past, made, name=present, axis=2))
        inputs.append((past, FLOAT, ["B", 1, "P", HIDDEN]))
        outputs.append((present, FLOAT, ["B", 1, "T", HIDDEN]))
    queries = g.op("Unsqueeze", g.op("MatMul", x, g.weight(HIDDEN, HIDDEN)), g.constant([1]))
    scores = g.op("Add", g.op("MatMul", queries, g.op("Transpose", grown[0], perm=[0, 1, 3, 2])), bias)
    mixed = g.op("Squeeze", g.op("MatMul", g.op("Softmax", scores, axis=-1), grown[1]), g.constant([1]))
    g.op("MatMul", g.op("Add", x, mixed), g.weight(HIDDEN, VOCABULARY, gain=4.0), name="logits")
    save(path, "decoder", g, inputs, outputs)


def picture_arrays(
    model_type: str, values: list[float], *, sizes: list[tuple[int, int]] | None = None, merge: int = 1
) -> dict[str, NDArray[Any]]:
    """What a processor makes of a prompt with an image for each of `values`.

    Args:
        values: the images differ by them.
        sizes: [(height, width)] in patches or pixels, for the types whose images have one.
    """
    sizes = sizes or [(2, 2)] * len(values)
    ids: list[int] = [3]
    parts, counts = [], []
    for n, (value, (height, width)) in enumerate(zip(values, sizes, strict=True)):
        sized = model_type in (*QWEN, "mistral3", "gemma4")
        patches = height * width if sized else 1
        parts.append(np.sin(np.arange(patches * CHANNELS, dtype=np.float32).reshape(patches, CHANNELS) + value))
        counts.append(patches // merge**2)
        mark = -1 - n if model_type == "phi3v" else IMAGE
        ids += [START, *([mark] * counts[-1]), END, 4 + n]
    arrays: dict[str, NDArray[Any]] = {"input_ids": np.array([ids], np.int32)}
    if model_type in QWEN:
        arrays["pixel_values"] = np.concatenate(parts)
        arrays["image_grid_thw"] = np.array([(1, *size) for size in sizes], np.int64)
    elif model_type == "mistral3":
        room = np.max(sizes, axis=0)
        pixels = np.zeros((len(values), CHANNELS, *room), np.float32)
        for n, (part, (height, width)) in enumerate(zip(parts, sizes, strict=True)):
            pixels[n, :, :height, :width] = part.reshape(height, width, CHANNELS).transpose(2, 0, 1)
        arrays["pixel_values"], arrays["image_sizes"] = pixels, np.array(sizes, np.int64)
    elif model_type == "gemma4":
        arrays["pixel_values"] = np.stack(parts)
        arrays["pixel_position_ids"] = np.zeros((len(values), counts[0], 2), np.int64)
    else:
        shape = (-1, 1, CHANNELS, 1, 1) if model_type == "phi3v" else (-1, CHANNELS, 1, 1)
        arrays["pixel_values"] = np.concatenate(parts).reshape(shape)
        arrays["image_sizes"] = np.ones((len(values), 2), np.int64)
    return arrays | {"num_image_tokens": np.array(counts, np.int64)}


def named(library: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """The arrays as `library`'s NamedTensors."""
    tensors = library.NamedTensors()
    for name, array in arrays.items():
        tensors[name] = library.Tensor(array)
    return tensors


def picture_inputs(library: Any, model_type: str, values: list[float], **how: Any) -> Any:
    """`picture_arrays` as `library`'s NamedTensors."""
    return named(library, picture_arrays(model_type, values, **how))
