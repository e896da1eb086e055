"""Places of tokens in a text with pictures: three numbers each (time, height, width), as Qwen-VL's decoders want them.

Text counts on, all three alike. The tokens of a picture lie in its grid, counted from where the text stopped; the text
behind it goes on after the largest number of the three. Pure arithmetic.

Source: "Qwen2-VL", Wang et al. 2024, section 2.1 (multimodal rotary position embedding); the rounding of times is
onnxruntime-genai's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.errors import StateError


@dataclass(frozen=True, slots=True)
class Marks:
    """The tokens that stand for pictures, and how patches become tokens."""

    image: int
    video: int
    start: int
    merge: int  # patches along one side of a token
    per_second: float

    @classmethod
    def of(cls, config: Config) -> Marks:
        """Those of a model; what its config leaves out is as in onnxruntime-genai."""
        model, vision = config.model, config.model.vision or {}
        return cls(
            model.image_token_id,
            model.video_token_id,
            model.vision_start_token_id,
            int(vision.get("spatial_merge_size", 2)),
            float(vision.get("tokens_per_second", 2.0)),
        )


@dataclass(frozen=True, slots=True)
class Grids:
    """Time, height and width, in patches, of the pictures of one prompt."""

    images: NDArray[np.int64]  # [I, 3]
    videos: NDArray[np.int64]  # [V, 3]
    seconds: NDArray[np.float32]  # [V or 0] of video that one step in time covers


def has_pictures(ids: NDArray[np.int32], marks: Marks) -> bool:
    """Whether a picture begins among `ids` [n]."""
    return bool(np.isin(ids[1:][ids[:-1] == marks.start], (marks.image, marks.video)).any())


def rope_places(ids: NDArray[np.int32], grids: Grids, first: int, marks: Marks) -> NDArray[np.int64]:
    """[3, n] the places of tokens `ids` [n], the first of which is at `first`.

    Raises:
        StateError: there is no grid for a picture, or it is larger than the prompt.

    >>> marks = Marks(image=9, video=8, start=7, merge=1, per_second=1.0)
    >>> grids = Grids(np.array([[1, 1, 2]]), np.zeros((0, 3), np.int64), np.zeros(0, np.float32))
    >>> rope_places(np.array([1, 7, 9, 9, 2], np.int32), grids, 0, marks).tolist()
    [[0, 1, 2, 2, 4], [0, 1, 2, 2, 4], [0, 1, 2, 3, 4]]
    """
    places = np.zeros((3, ids.size), np.int64)
    at, place, images, videos = 0, first, 0, 0
    for begin in (
        np.flatnonzero((ids[:-1] == marks.start) & np.isin(ids[1:], (marks.image, marks.video))) + 1
    ).tolist():
        if begin < at:
            continue  # inside of a picture
        places[:, at:begin] = place + np.arange(begin - at)
        place += begin - at
        if ids[begin] == marks.image:
            block = _block(grids.images, images, "image", 0.0, marks)
            images += 1
        else:
            seconds = float(grids.seconds[videos]) if videos < grids.seconds.size else 1.0
            block = _block(grids.videos, videos, "video", seconds, marks)
            videos += 1
        if begin + block.shape[1] > ids.size:
            raise StateError(
                f"image_grid_thw: a picture has {block.shape[1]} tokens and input_ids only {ids.size - begin} from its "
                "first one; give every token of the picture in one prompt"
            )
        at = begin + block.shape[1]
        places[:, begin:at] = place + block
        place += int(block.max()) + 1
    places[:, at:] = place + np.arange(ids.size - at)
    return places


def _block(grids: NDArray[np.int64], index: int, kind: str, seconds: float, marks: Marks) -> NDArray[np.int64]:
    """[3, tokens] of one picture, counted from 0."""
    if index >= grids.shape[0]:
        raise StateError(
            f"Not enough {kind}_grid_thw data for {kind} tokens. input_ids has more pictures than {kind}_grid_thw has "
            f"rows ({grids.shape[0]}); give one row (time, height, width in patches) for each"
        )
    times, height, width = (int(grids[index, 0]), *(int(size) // marks.merge for size in grids[index, 1:]))
    if min(times, height, width) < 1:
        raise StateError(
            f"{kind}_grid_thw is {grids[index].tolist()}; every number must be at least 1, and height and width at "
            f"least spatial_merge_size, {marks.merge}"
        )
    time, row, column = np.indices((times, height, width)).reshape(3, -1)
    stretched = np.floor(time * seconds * marks.per_second + 0.5).astype(np.int64)
    return np.stack([stretched, row, column])
