"""Several images or sounds, as they were given together -> what each run of their graph takes.

Most graphs take all of them at once. Some were exported for one at a time, as onnxruntime-genai runs them: Qwen-VL's,
unless all have one grid; Mistral 3's, whose images have sizes of their own inside of a common one; Gemma 4's; and
LFM2-Audio's, whose sounds have lengths of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.models.session import Arrays, Session

Names = Mapping[str, str]
"""{what a tensor is, in genai_config.json's words: its name}."""
Cut = Callable[[Arrays, Names, NDArray[np.int64], Session], list[Arrays]]
"""Everything that was given, the names, how many features each has, and the graph -> the inputs of every run."""

QWEN_VL = ("fara", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe")
"""Model types whose places have three numbers, and whose image graph may be made for one image."""


def cut_for(model_type: str) -> Cut:
    """How a model of this type takes several."""
    if model_type in QWEN_VL:
        return by_grid
    return _BY_TYPE.get(model_type, together)


def together(given: Arrays, _names: Names, _counts: NDArray[np.int64], _graph: Session) -> list[Arrays]:
    """All in one run."""
    return [given]


def by_grid(given: Arrays, names: Names, _counts: NDArray[np.int64], graph: Session) -> list[Arrays]:
    """pixel_values [patches of all images, D] and image_grid_thw [images, 3]: image by image, unless the graph takes
    any number of images and all have one grid."""
    pixels, grids = given.get(names["pixel_values"]), given.get(names["image_grid_thw"])
    if pixels is None or grids is None or grids.shape[0] < 2:
        return [given]
    info = graph.inputs.get(names["image_grid_thw"])
    if info is not None and not isinstance(info.shape[0], int) and bool((grids == grids[0]).all()):
        return [given]
    sizes = grids.prod(axis=1)
    beside = int(grids[:, 1:].prod(axis=1).sum())  # a processor may have repeated every image in time
    if pixels.shape[0] != sizes.sum() and beside and pixels.shape[0] % beside == 0:
        sizes = grids[:, 1:].prod(axis=1) * (pixels.shape[0] // beside)
    if pixels.shape[0] != sizes.sum():
        raise StateError(
            f"pixel_values has {pixels.shape[0]} patches and image_grid_thw counts {int(sizes.sum())}; give one grid "
            "(time, height, width in patches) for each image"
        )
    stops = np.cumsum(sizes)
    return [
        given | {names["pixel_values"]: pixels[stop - size : stop], names["image_grid_thw"]: grids[n : n + 1]}
        for n, (stop, size) in enumerate(zip(stops.tolist(), sizes.tolist(), strict=True))
    ]


def by_size(given: Arrays, names: Names, _counts: NDArray[np.int64], _graph: Session) -> list[Arrays]:
    """pixel_values [images, C, H, W], each image in the upper left corner, and image_sizes [images, 2] (height, width):
    image by image, cut to its size."""
    pixels, sizes = given[names["pixel_values"]], given.get(names["image_sizes"])
    if pixels.shape[0] < 2:
        return [given]
    if sizes is None or sizes.shape != (pixels.shape[0], 2):
        got = "none" if sizes is None else str(list(sizes.shape))
        raise StateError(
            f"multi-image inputs require image_sizes metadata: pixel_values holds {pixels.shape[0]} images, allowed is "
            f"image_sizes of shape [{pixels.shape[0]}, 2] (height, width); got {got}"
        )
    room = np.array(pixels.shape[2:])
    if bool((sizes < 1).any() or (sizes > room).any()):
        raise StateError(f"image_sizes is {sizes.tolist()}; allowed is 1 to {room.tolist()}, which pixel_values has")
    return [
        given | {names["pixel_values"]: pixels[n : n + 1, :, :height, :width]}
        for n, (height, width) in enumerate(sizes.tolist())
    ]


def by_image(given: Arrays, names: Names, counts: NDArray[np.int64], _graph: Session) -> list[Arrays]:
    """pixel_values and pixel_position_ids [images, patches, ...]: image by image."""
    pixels, places = given[names["pixel_values"]], given.get(names["pixel_position_ids"])
    if pixels.shape[0] < 2:
        return [given]
    if places is None or places.shape[:2] != pixels.shape[:2] or counts.size != pixels.shape[0]:
        raise StateError(
            f"pixel_values holds {pixels.shape[0]} images of {pixels.shape[1]} patches; pixel_position_ids of as many, "
            f"and one num_image_tokens value per image are wanted (got {counts.size})"
        )
    both = ((names["pixel_values"], pixels), (names["pixel_position_ids"], places))
    return [given | {name: value[n : n + 1] for name, value in both} for n in range(pixels.shape[0])]


def by_clip(given: Arrays, names: Names, counts: NDArray[np.int64], _graph: Session) -> list[Arrays]:
    """audio_embeds [clips, frames, mels] and audio_lengths [clips]: clip by clip, without what fills it up."""
    mel, lengths = given[names["audio_embeds"]], given.get(names["audio_lengths"])
    if mel.shape[0] < 2:
        return [given]
    if lengths is None or lengths.size != mel.shape[0] or counts.size != mel.shape[0]:
        raise StateError(
            f"the mel tensor holds {mel.shape[0]} clips but audio_sizes has {counts.size} entries and audio_lengths "
            f"{0 if lengths is None else lengths.size}; give one of each per clip"
        )
    frames: list[int] = lengths.reshape(-1).tolist()
    if min(frames) < 1 or max(frames) > mel.shape[1]:
        raise StateError(f"audio_lengths is {frames}; allowed is 1 to {mel.shape[1]}, the frames that are there")
    kind: Any = lengths.dtype
    return [
        given | {names["audio_embeds"]: mel[n : n + 1, :count], names["audio_lengths"]: np.array([count], kind)}
        for n, count in enumerate(frames)
    ]


_BY_TYPE: dict[str, Cut] = {
    "mistral3": by_size,
    "gemma4": by_image,
    "gemma4_unified": by_image,
    "lfm2_audio": by_clip,
}
