"""Places of tokens in a text with pictures, against a slow reading of the paper; and what a text keeps of prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.models.mrope import Grids, Marks, has_pictures, rope_places
from genai_lab.models.turns import Turn, Turns

IMAGE, VIDEO, START = 90, 91, 92
NONE = np.zeros((0, 3), np.int64)


def grids(images: list[list[int]], videos: list[list[int]] | None = None, seconds: list[float] | None = None) -> Grids:
    return Grids(
        np.array(images or NONE, np.int64).reshape(-1, 3),
        np.array(videos or NONE, np.int64).reshape(-1, 3),
        np.array(seconds or [], np.float32),
    )


def slowly(parts: list[int | tuple[int, int, int]], first: int, merge: int) -> tuple[list[int], list[list[int]]]:
    """Ids and places of a text whose numbers are tokens and whose triples are images, one token after another."""
    ids: list[int] = []
    places: list[list[int]] = []
    following = first
    for part in parts:
        if isinstance(part, int):
            ids.append(part)
            places.append([following] * 3)
            following += 1
            continue
        ids.append(START)
        places.append([following] * 3)
        base = following + 1
        times, height, width = part[0], part[1] // merge, part[2] // merge
        for _time in range(times):
            for row in range(height):
                for column in range(width):
                    ids.append(IMAGE)
                    places.append([base, base + row, base + column])
        following = base + max(1, height, width)
    return ids, places


PARTS = st.lists(
    st.integers(1, 9) | st.tuples(st.just(1), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=8
)


@given(PARTS, st.integers(0, 50), st.sampled_from([1, 2]))
def test_it_is_the_slow_reading(parts: list[int | tuple[int, int, int]], first: int, merge: int) -> None:
    parts = [part if isinstance(part, int) else (part[0], part[1] * merge, part[2] * merge) for part in parts]
    ids, expected = slowly(parts, first, merge)
    images = [list(part) for part in parts if not isinstance(part, int)]
    marks = Marks(IMAGE, VIDEO, START, merge, 1.0)
    assert rope_places(np.array(ids, np.int32), grids(images), first, marks).T.tolist() == expected
    assert has_pictures(np.array(ids, np.int32), marks) == bool(images)


def test_a_videos_times_are_stretched_and_rounded() -> None:
    ids = np.array([START, VIDEO, VIDEO, VIDEO, 5], np.int32)
    marks = Marks(IMAGE, VIDEO, START, 1, 2.0)
    places = rope_places(ids, grids([], [[3, 1, 1]], [0.75]), 0, marks)
    assert places[0].tolist() == [0, 1, 3, 4, 5]  # 0, 1.5 and 3 behind place 1
    assert places[1].tolist() == [0, 1, 1, 1, 5]
    assert rope_places(ids, grids([], [[3, 1, 1]]), 0, marks)[0].tolist() == [0, 1, 3, 5, 6]  # a second for each


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([], "Not enough image_grid_thw data for image tokens"),
        ([[1, 0, 2]], "at least 1"),
        ([[1, -2, 2]], "at least 1"),
        ([[1, 3, 3]], "9 tokens and input_ids only 5"),
    ],
)
def test_grids_that_do_not_fit_are_named(images: list[list[int]], words: str) -> None:
    marks = Marks(IMAGE, VIDEO, START, 1, 1.0)
    with pytest.raises(StateError, match=words):
        rope_places(np.array([START, *[IMAGE] * 4, 5], np.int32), grids(images), 0, marks)


def turn(start: int, places: list[int]) -> Turn:
    count = len(places)
    embeds = {"e": np.arange(start, start + count, dtype=np.float32).reshape(1, count, 1)}
    return Turn(start, embeds, {}, np.tile(np.array(places, np.int64), (3, 1)))


def test_what_follows_a_prompt_counts_on_from_its_last_place() -> None:
    turns = Turns()
    turns.add(turn(2, [2, 3, 3, 3]))  # four tokens, two places
    turns.add(turn(8, [6, 6]))
    assert turns.places(0, 12)[0].tolist() == [0, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7, 8]
    assert turns.places(5, 9)[1].tolist() == [3, 4, 5, 6]
    assert [each.start for each in turns.among(6, 8)] == []
    assert [each.start for each in turns.among(5, 9)] == [2, 8]


def test_a_cut_text_keeps_the_beginning_of_a_prompt() -> None:
    turns = Turns()
    turns.add(turn(2, [2, 3, 3, 3]))
    twin = turns.copy(4)
    (left,) = twin.among(0, 9)
    assert (left.start, left.stop, left.embeds["e"].reshape(-1).tolist()) == (2, 4, [2.0, 3.0])
    assert twin.next_place(4) == 4 and turns.next_place(6) == 4
    twin.cut(2)
    assert twin.among(0, 9) == [] and twin.next_place(2) == 2
    kept: NDArray[np.int64] = turns.places(0, 6)
    turns.add(turn(2, [2, 2, 2, 2]))  # the text was cut there and goes on otherwise
    assert kept[0].tolist() == [0, 1, 2, 3, 3, 3] and turns.places(0, 6)[0].tolist() == [0, 1, 2, 2, 2, 2]
