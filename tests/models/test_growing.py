"""Graphs without attention that appends in place: the same tokens whichever way they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import ModelFolderError
from genai_lab.models import make_one
from genai_lab.models.growing import GrowingState
from tests.graphs import plain_decoder

KINDS: dict[str, dict[str, Any]] = {
    "apart": {},
    "combined": {"combined": True},
    "no positions": {"positions": False},
    "int32": {"ids_dtype": np.int32},
    "float16 logits": {"float16_logits": True},
    "last logits only": {"all_logits": False},
    "no layers": {"layers": 0},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(plain_decoder(tmp_path_factory.mktemp("plain") / "model", **KINDS[request.param]))


def generator(model: genai_lab.Model, **options: Any) -> genai_lab.Generator:
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(**options)
    return genai_lab.Generator(model, params)


def logits(model: genai_lab.Model, tokens: list[int]) -> np.ndarray:
    made = generator(model)
    made.append_tokens(tokens)
    return made.get_logits()


def test_the_graph_is_known_for_what_it_is(model: genai_lab.Model, tiny_folder: Path, tmp_path: Path) -> None:
    assert not model.appends_in_place
    assert isinstance(make_one(model, 8), GrowingState)
    silent = tmp_path / "silent"  # the same fused graph, with a config that does not say that it appends in place
    silent.mkdir()
    for file in tiny_folder.iterdir():
        (silent / file.name).symlink_to(file)
    config = json.loads((tiny_folder / "genai_config.json").read_text())
    config["search"]["past_present_share_buffer"] = False
    (silent / "genai_config.json").unlink()
    (silent / "genai_config.json").write_text(json.dumps(config))
    assert genai_lab.Model(silent).appends_in_place


def test_step_by_step_is_at_once(model: genai_lab.Model) -> None:
    made = generator(model)
    made.append_tokens([5, 6])
    made.append_tokens([7])
    made.append_tokens([8, 9, 10])
    np.testing.assert_allclose(made.get_logits(), logits(model, [5, 6, 7, 8, 9, 10]), atol=2e-3)


def test_after_a_rewind_it_is_as_if_the_rest_had_never_been(model: genai_lab.Model) -> None:
    made = generator(model)
    made.append_tokens([5, 6, 7, 8])
    made.rewind_to(2)
    made.append_tokens([9, 10])
    np.testing.assert_allclose(made.get_logits(), logits(model, [5, 6, 9, 10]), atol=2e-3)
    made.rewind_to(0)
    made.append_tokens([11])
    np.testing.assert_allclose(made.get_logits(), logits(model, [11]), atol=2e-3)


def test_a_fork_goes_its_own_way(model: genai_lab.Model) -> None:
    made = generator(model)
    made.append_tokens([5, 6, 7, 8])
    twin = made.fork(3)
    twin.append_tokens([9])
    made.append_tokens([10])
    np.testing.assert_allclose(twin.get_logits(), logits(model, [5, 6, 7, 9]), atol=2e-3)
    np.testing.assert_allclose(made.get_logits(), logits(model, [5, 6, 7, 8, 10]), atol=2e-3)


def test_rows_of_a_batch_are_those_rows_alone(model: genai_lab.Model) -> None:
    prompts = [[5, 6, 7], [8], [9, 10]]
    made = generator(model, batch_size=3, max_length=20)
    made.append_tokens(np.array([[5, 6, 7], [8, 0, 0], [0, 9, 10]], np.int32))
    while not made.is_done():
        made.generate_next_token()
    for row, prompt in enumerate(prompts):
        single = generator(model, max_length=len(prompt) + 17)
        single.append_tokens(prompt)
        while not single.is_done():
            single.generate_next_token()
        own = single.get_sequence(0).tolist()[len(prompt) :]
        assert made.get_sequence(row).tolist()[3 : 3 + len(own)] == own


def test_a_graph_without_its_past_is_refused(tmp_path: Path) -> None:
    folder = plain_decoder(tmp_path / "model")
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["outputs"]["present_key_names"] = "now.%d.key"
    (folder / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError, match=r"now\.0\.key"):
        genai_lab.Model(folder)
