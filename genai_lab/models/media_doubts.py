"""A prompt held against the images and sounds that came with it: do its places and their features agree?

Receives a prompt's tokens and its tensors; returns words for what does not fit, or None. Nothing is run or changed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.models.media_cuts import QWEN_VL
from genai_lab.models.session import Arrays

COUNTS_DOWN = ("phi3v",)
"""Model types whose prompts have -1 in the places of the first image, -2 in those of the second, and so on."""


def doubts(tokens: NDArray[np.int32], given: Arrays, found: dict[str, int], config: Config) -> str | None:
    """Words for a prompt that has not the places that its features need.

    Args:
        tokens: [n] of the prompt.
        given: its tensors, by the names of onnxruntime-genai's processors where the graph has no others.
        found: {"run_vision" or "run_speech": how many features there are}.
    """
    seen, heard = found.get("run_vision"), found.get("run_speech")
    words = None if seen is None else _images(tokens, given, seen, config)
    if words is None and heard is not None and config.model.audio_token_id:
        places = int((tokens == config.model.audio_token_id).sum())
        if places != heard:
            words = _places(places, config.model.audio_token_id, heard, "audio_sizes")
    return words


def _images(tokens: NDArray[np.int32], given: Arrays, seen: int, config: Config) -> str | None:
    model = config.model
    if model.type in COUNTS_DOWN:
        places, mark = int((tokens < 0).sum()), -1
        images = given["num_image_tokens"].size
        if int(tokens.min()) < -images:
            return f"input_ids has {int(tokens.min())} and there are {images} images, which are -1 to {-images}"
    elif model.image_token_id:
        places, mark = int((tokens == model.image_token_id).sum()), model.image_token_id
    else:
        return None
    if places != seen:
        return _places(places, mark, seen, "num_image_tokens")
    return _sizes(tokens, given, seen, config)


def _sizes(tokens: NDArray[np.int32], given: Arrays, seen: int, config: Config) -> str | None:
    """What image_grid_thw or image_sizes say about the number of features, and whether every picture begins."""
    vision = config.model.vision or {}
    names, merge = vision.get("inputs", {}), int(vision.get("spatial_merge_size", 2))
    if config.model.type in QWEN_VL:
        grids = given.get(names.get("image_grid_thw", "image_grid_thw"))
        if grids is None:
            return None
        if int(grids.prod(axis=1).sum()) // merge**2 != seen:
            return f"image_grid_thw is {grids.tolist()}, which makes another number of tokens than {seen}"
        begins = tokens[1:][tokens[:-1] == config.model.vision_start_token_id] == config.model.image_token_id
        if int(begins.sum()) != grids.shape[0]:
            return (
                f"input_ids has {int(begins.sum())} pictures that begin with vision_start_token_id "
                f"({config.model.vision_start_token_id}), and image_grid_thw has {grids.shape[0]}"
            )
    elif config.model.type == "mistral3" and "image_sizes" in given:
        side = int(vision.get("patch_size", 14)) * merge
        sizes = given["image_sizes"]
        if int((sizes // side).prod(axis=1).sum()) != seen:
            return f"image_sizes is {sizes.tolist()}, which makes another number of tokens than {seen}"
    return None


def _places(places: int, mark: int, features: int, counted: str) -> str:
    less = " and below" if mark < 0 else ""
    return f"input_ids has {places} places ({mark}{less}) for the {features} features that {counted} counts"
