"""Logits of a prompt's end alone, from graphs that give those of every position: the same numbers, fewer of them."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import genai_lab
from genai_lab.errors import ArgumentError, ModelFolderError
from genai_lab.models import last_positions
from genai_lab.models.decoder import DecoderState
from genai_lab.models.graph_bytes import GraphBytes
from genai_lab.models.last_positions import LOGITS_FROM, LeftAlone, with_logits_from
from genai_lab.models.rows import RowsExecutor
from genai_lab.models.wire import fields, message
from tests.graphs_adapted import adapted
from tests.tiny import tiny_model_folder

ALWAYS = 1 << 40  # weights of a head that is worth everything
PROMPT = np.random.default_rng(5).integers(3, 250, 60).astype(np.int32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders with the logits of every position, by precision, each made once."""
    made: dict[str, Path] = {}

    def folder(precision: str) -> Path:
        if precision not in made:
            path = tmp_path_factory.mktemp(precision) / "model"
            made[precision] = tiny_model_folder(path, precision, extra_options={"prune_lm_head": False})
        return made[precision]

    return folder


@pytest.fixture
def tiny_heads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a tiny model's head was worth it."""
    monkeypatch.setattr(last_positions, "LEAST_WEIGHTS", 0)


def rows_of(model: genai_lab.Model) -> RowsExecutor:
    layout = model.kv_layout
    shape = (layout.num_layers, 2, *layout.row_shape(3, 200))
    return RowsExecutor(model, np.zeros(shape, layout.numpy_dtype))


def both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[genai_lab.Model, genai_lab.Model]:
    """The model as it is, and with a graph that can leave logits out."""
    plain = genai_lab.Model(folder)
    monkeypatch.setattr(last_positions, "LEAST_WEIGHTS", 0)
    edited = genai_lab.Model(folder)
    assert (plain.session._has_logits_from, edited.session._has_logits_from) == (False, True)
    return plain, edited


# ---- the same numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["int4", "int8", "fp32"])
def test_the_last_positions_logits_are_bit_for_bit_the_same(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    plain, edited = (rows_of(model) for model in both(folders(precision), monkeypatch))
    cached = 0
    for size in (2, 3, 40, 1, 7):
        tokens = PROMPT[cached : cached + size]
        want, got = (executor.chunk(0, tokens, cached).copy() for executor in (plain, edited))
        np.testing.assert_array_equal(got, want)
        cached += size
    assert plain._chunk(1, PROMPT, 0, every=False).shape[0] == PROMPT.size
    assert edited._chunk(1, PROMPT, 0, every=False).shape[0] == 2


@pytest.mark.parametrize("precision", ["int4", "fp32"])
def test_every_position_can_still_be_had_and_decoding_is_as_before(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    plain, edited = (rows_of(model) for model in both(folders(precision), monkeypatch))
    for executor in (plain, edited):
        assert executor.has_all_logits
        executor.chunk(0, PROMPT, 0)  # of the end alone, by the binding that is used again
        executor.chunk(1, PROMPT[:9], 0)
    want, got = (executor.every(0, PROMPT[:20], 0).copy() for executor in (plain, edited))
    assert want.shape[0] == 20
    np.testing.assert_array_equal(got, want)
    want, got = (executor.decode(0, PROMPT[:2], np.array([20, 9])).copy() for executor in (plain, edited))
    np.testing.assert_array_equal(got, want)


def answer(model: genai_lab.Model, chunk_size: int) -> tuple[list[int], NDArray[np.float32], NDArray[np.float32]]:
    """The tokens behind the prompt, and the logits that a caller sees after the prompt and after two more tokens."""
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=90, chunk_size=chunk_size)
    generator = genai_lab.Generator(model, params)
    generator.append_tokens(PROMPT)
    read = generator.get_output("logits")
    np.testing.assert_array_equal(generator.get_output("logits"), read)
    for _ in range(12):
        generator.generate_next_token()
    generator.append_tokens([5, 6, 7])
    return generator.get_sequence(0).tolist(), read, generator.get_output("logits")


def test_a_generator_shows_every_logit_of_the_last_chunk(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, edited = both(folders("int4"), monkeypatch)
    for chunk_size in (16, 100):
        want, got = answer(plain, chunk_size), answer(edited, chunk_size)
        assert got[0] == want[0]
        assert got[1].shape[1] == (12 if chunk_size == 16 else 60)
        for ours, theirs in zip(got[1:], want[1:], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def noting(model: genai_lab.Model, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the model's runs over several tokens are asked for from now on: every position?"""
    asked: list[bool] = []
    bind = model.session.bind_wanted

    def noted(binding: object, *, every: bool) -> bool:
        asked.append(every)
        return bind(binding, every=every)

    monkeypatch.setattr(model.session, "bind_wanted", noted)
    return asked


def test_a_generator_reads_the_last_chunk_again_for_who_wants_every_logit(
    folders: Callable[[str], Path], tiny_heads_too: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = genai_lab.Model(folders("int4"))
    asked = noting(model, monkeypatch)
    answer(model, 16)
    assert asked == [*[False] * 4, True, False, True], "four chunks, a look; three tokens, a look"


def test_who_took_over_another_beginning_does_not_read_its_own_again(
    folders: Callable[[str], Path], tiny_heads_too: None
) -> None:
    model = genai_lab.Model(folders("fp32"))
    reader, other = DecoderState(model, 80), DecoderState(model, 80)
    for state, tokens in ((reader, PROMPT[:20]), (other, PROMPT[20:40])):
        state.prepare(tokens, 0)
        state.run()
    reader.take_prefix(other, 10)
    before = reader.cache.keys(1).copy()
    assert reader.output("logits", 20).shape[1] == 2
    np.testing.assert_array_equal(reader.cache.keys(1), before)


def test_a_look_at_logits_that_was_stopped_can_be_had_again(
    folders: Callable[[str], Path], tiny_heads_too: None
) -> None:
    state = DecoderState(genai_lab.Model(folders("fp32")), 80)
    state.prepare(PROMPT, 0)
    state.run()
    state.terminated = True
    with pytest.raises(Exception, match="terminate"):
        state.output("logits", PROMPT.size)
    state.terminated = False
    assert state.output("logits", PROMPT.size).shape[1] == PROMPT.size


def test_a_draft_asks_for_the_end_alone_and_its_target_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with genai_lab.load("tiny-speculative") as model:
        assert model.draft is not None
        target, draft = noting(model, monkeypatch), noting(model.draft, monkeypatch)
        params = genai_lab.GeneratorParams(model)
        params.set_search_options(max_length=90, chunk_size=16)
        generator = genai_lab.Generator(model, params)
        generator.append_tokens(PROMPT[:40])
        for _ in range(8):
            generator.generate_next_token()
        assert draft and not any(draft)
        assert target[:3] == [False] * 3 and all(target[3:]) and len(target) > 3


def test_an_engine_answers_the_same(folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for model in both(folders("int4"), monkeypatch):
        engine = genai_lab.Engine(model, max_scheduled_tokens=16)
        requests = [engine.create_request() for _ in range(3)]
        for number, request in enumerate(requests):
            options = genai_lab.TurnOptions(request)
            options.set_max_generated_tokens(10)
            request.begin_turn(PROMPT[number : number + 20 + 10 * number], options)
        buffer, tokens = engine.create_event_buffer(100), []
        while engine.has_pending_requests():
            engine.run(buffer)
            events = [buffer[place] for place in range(len(buffer))]
            tokens += [(event.request is requests[0], event.token) for event in events]
        answers.append(tokens)
    assert answers[0] == answers[1] and len(answers[0]) >= 30


# ---- nobody sees it ---------------------------------------------------------------------------------------------


def test_the_input_is_nobodys_to_see_or_to_give(folders: Callable[[str], Path], tiny_heads_too: None) -> None:
    model = genai_lab.Model(folders("fp32"))
    assert LOGITS_FROM not in model.session.inputs and LOGITS_FROM not in model.session.preset
    generator = genai_lab.Generator(model, genai_lab.GeneratorParams(model))
    generator.set_model_input(LOGITS_FROM, np.array([-1]))  # an unknown name: it does nothing
    generator.append_tokens(PROMPT[:4])
    assert generator.get_output("logits").shape[1] == 4
    with pytest.raises(ArgumentError, match="was not found: the last run's are input_ids") as caught:
        generator.get_input(LOGITS_FROM)
    assert LOGITS_FROM not in str(caught.value).split(": the last run's")[1]


def test_an_adapters_weights_are_still_taken(tmp_path: Path, tiny_heads_too: None) -> None:
    folder = adapted(tiny_model_folder(tmp_path / "model", extra_options={"prune_lm_head": False}))
    model = genai_lab.Model(folder)
    assert model.session._has_logits_from and model.session.preset == {"adapter_a"}


@pytest.mark.slow
def test_a_graph_from_memory_and_a_profile(
    folders: Callable[[str], Path], tmp_path: Path, tiny_heads_too: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(folders("fp32"), tmp_path / "model")
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["session_options"]["enable_profiling"] = str(tmp_path / "profile")
    (folder / "genai_config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    wanted = genai_lab.Config(folder)
    wanted.add_model_data("model.onnx", (folder / "model.onnx").read_bytes())
    (folder / "model.onnx").unlink()
    with genai_lab.Model(wanted) as model:
        assert model.session._has_logits_from
        rows = rows_of(model)
        assert rows._chunk(0, PROMPT, 0, every=False).shape[0] == 2
        del rows
        gc.collect()
    gc.collect()
    (profile,) = tmp_path.glob("profile*.json")
    assert any(event.get("args", {}).get("op_name") == "Slice" for event in json.loads(profile.read_text()))


# ---- what cannot be loaded --------------------------------------------------------------------------------------


def _without_weights(folder: Path) -> None:
    (folder / "model.onnx.data").unlink()


def _cut_weights(folder: Path) -> None:
    os.truncate(folder / "model.onnx.data", 1000)


def _cut_graph(folder: Path) -> None:
    os.truncate(folder / "model.onnx", 5000)


def _unknown_node(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    model.graph.node[3].op_type = "NoSuchOperator"
    onnx.save(model, folder / "model.onnx")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without_weights, r"model\.onnx\.data', the weights of model\.onnx, does not exist"),
        (_cut_weights, r"model\.onnx\.data', the weights of model\.onnx, is cut or damaged"),
        (_cut_graph, r"model\.onnx' is cut or damaged"),
        (_unknown_node, r"cannot use the graph '.*model\.onnx': .*NoSuchOperator"),
    ],
)
def test_errors_are_those_of_the_file_itself(
    folders: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
    words: str,
) -> None:
    folder = shutil.copytree(folders("fp32"), tmp_path / "model")
    spoil(folder)
    said = []
    for least in (last_positions.LEAST_WEIGHTS, 0):
        monkeypatch.setattr(last_positions, "LEAST_WEIGHTS", least)
        with pytest.raises(ModelFolderError, match=words) as caught:
            genai_lab.Model(folder)
        said.append(str(caught.value))
    assert said[0] == said[1]


# ---- which graphs -----------------------------------------------------------------------------------------------


def graph_of(
    tail: Callable[[list[onnx.NodeProto], dict[str, NDArray[np.generic]]], None] | None = None,
    *,
    before: Callable[[list[onnx.NodeProto], dict[str, NDArray[np.generic]]], None] | None = None,
    head: str = "MatMul",
    shape: tuple[int | str | None, ...] = ("batch", "sequence", 8),
    elem_type: int = TensorProto.FLOAT,
    ir_version: int = 8,
    opset: int = 17,
    more_outputs: tuple[str, ...] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """x [B, S, 4] -> Sigmoid "normed" -> `before` -> head "product" -> `tail` -> logits."""
    random = np.random.default_rng(0)
    constants: dict[str, NDArray[np.generic]] = {"w": random.standard_normal((4, 8)).astype(np.float32)}
    nodes = [helper.make_node("Sigmoid", ["x"], ["normed"])]
    if before is not None:
        before(nodes, constants)
    domain = "" if head in ("MatMul", "Gemm", "Einsum") else "com.microsoft"
    nodes.append(helper.make_node(head, [nodes[-1].output[0], "w"], ["product"], domain=domain, **attributes))
    if tail is not None:
        tail(nodes, constants)
    nodes[-1].output[0] = "logits"
    outputs = [helper.make_tensor_value_info("logits", elem_type, shape)]
    outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in more_outputs]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", 4])],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
        value_info=[
            helper.make_tensor_value_info("normed", TensorProto.FLOAT, ["batch", "sequence", 4]),
            helper.make_tensor_value_info("product", TensorProto.FLOAT, ["batch", "sequence", 8]),
        ],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=ir_version, opset_imports=opsets)


Build = Callable[[list[onnx.NodeProto], dict[str, NDArray[np.generic]]], None]


def then(kind: str, *constants: NDArray[np.generic], first: bool = True, **attributes: Any) -> Build:
    """A node behind the last one, with constant operands behind its result, or before."""

    def build(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
        names = [f"c{len(known) + index}" for index in range(len(constants))]
        known.update(zip(names, constants, strict=True))
        moving = nodes[-1].output[0]
        inputs = [moving, *names] if first else [*names[:1], moving, *names[1:]]
        nodes.append(helper.make_node(kind, inputs, [f"{kind}_{len(nodes)}"], **attributes))

    return build


def in_turn(*steps: Build) -> Build:
    def build(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
        for step in steps:
            step(nodes, known)

    return build


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32) + 2


def constant_node(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
    nodes.insert(0, helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(numbers(1, 8))))
    nodes.append(helper.make_node("Mul", ["two", "product"], ["scaled"]))


SOFTCAP = in_turn(then("Div", numbers()), then("Tanh"), then("Mul", numbers()))
TAILS = {
    "nothing": None,
    "a bias": then("Add", numbers(8)),
    "a softcap": SOFTCAP,
    "a mask over the vocabulary": then("Where", np.arange(8) < 6, numbers(1), first=False),
    "a scale, a bias [1, 1, V] and a softcap": in_turn(then("Mul", numbers(1)), then("Add", numbers(1, 1, 8)), SOFTCAP),
    "a number from a node": constant_node,
}


@pytest.mark.parametrize("tail", TAILS)
def test_what_follows_the_head_number_by_number_is_passed_over(tail: str) -> None:
    model = graph_of(TAILS[tail])
    data = model.SerializeToString()
    edited = with_logits_from(data, "logits", ALWAYS)
    assert isinstance(edited, bytes)
    onnx.checker.check_model(onnx.load_model_from_string(edited))
    x = np.random.default_rng(2).standard_normal((2, 9, 4)).astype(np.float32)
    plain, session = ort.InferenceSession(data), ort.InferenceSession(edited)
    (want,) = plain.run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
    (last,) = session.run(None, {"x": x, LOGITS_FROM: np.array([-2])})
    assert last.shape == (2, 2, 8)
    np.testing.assert_array_equal(last, want[:, -2:])
    (one,) = session.run(None, {"x": x[:, :1], LOGITS_FROM: np.array([-2])})
    assert one.shape == (2, 1, 8)


def test_nothing_else_is_changed() -> None:
    model = graph_of(SOFTCAP, more_outputs=("normed",))
    edited = with_logits_from(model.SerializeToString(), "logits", ALWAYS)
    assert isinstance(edited, bytes)
    after = onnx.load_model_from_string(edited)
    assert [each.name for each in after.graph.value_info] == ["normed"], "of what is cut nothing is said any more"
    assert [each.name for each in after.graph.input] == ["x", LOGITS_FROM]
    shape = after.graph.output[0].type.tensor_type.shape.dim
    assert [each.dim_param or each.dim_value for each in shape] == ["batch", "logits_positions", 8]
    head = next(node for node in after.graph.node if node.op_type == "MatMul")
    assert next(node for node in after.graph.node if node.op_type == "Slice").output[0] == head.input[0]
    head.input[0] = "normed"
    nodes = [node for node in after.graph.node if node.op_type != "Slice"]
    assert nodes == list(model.graph.node)
    assert list(after.graph.initializer)[: len(model.graph.initializer)] == list(model.graph.initializer)
    assert (after.ir_version, after.opset_import) == (model.ir_version, model.opset_import)


def quantized(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
    """The product of numbers rounded by the largest of all positions, as dynamic quantization writes it."""
    known["w8"] = np.ones((4, 8), np.int8)
    nodes[-1] = helper.make_node("DynamicQuantizeLinear", ["normed"], ["x8", "scale", "zero"])
    nodes.append(helper.make_node("MatMulInteger", ["x8", "w8", "zero"], ["whole"]))
    nodes.append(helper.make_node("Cast", ["whole"], ["product"], to=TensorProto.FLOAT))


def of_two_parts(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
    nodes.append(helper.make_node("MatMul", ["normed", "w"], ["narrow"]))
    nodes.append(helper.make_node("Add", ["product", "narrow"], ["sum"]))


def mixing(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
    nodes.append(helper.make_node("CumSum", ["product", "one"], ["sums"]))
    known["one"] = np.array(1)


def read_twice(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
    nodes.append(helper.make_node("Softmax", ["product"], ["chances"]))
    nodes.append(helper.make_node("Identity", ["product"], ["same"]))


def read_inside(nodes: list[onnx.NodeProto], known: dict[str, NDArray[np.generic]]) -> None:
    """A branch of If reads the product, too."""
    known["yes"] = np.array(True)
    branch = helper.make_graph(
        [helper.make_node("Abs", ["product"], ["branch"])],
        "branch",
        [],
        [helper.make_tensor_value_info("branch", TensorProto.FLOAT, None)],
    )
    nodes.append(helper.make_node("If", ["yes"], ["chosen"], then_branch=branch, else_branch=branch))
    nodes.append(helper.make_node("Identity", ["product"], ["same"]))


LEFT = {
    "logits of the last position": (graph_of(shape=("batch", 1, 8)), LeftAlone.LAST_ONLY),
    "logits of a window": (graph_of(shape=("batch", 64, 8)), LeftAlone.LAST_ONLY),
    "logits of two axes": (graph_of(shape=("sequence", 8)), LeftAlone.LAST_ONLY),
    "logits of another type": (graph_of(elem_type=TensorProto.FLOAT16), LeftAlone.NOT_FLOAT),
    "an old format": (graph_of(ir_version=3), LeftAlone.OLD),
    "old operators": (graph_of(opset=9), LeftAlone.OLD),
    "the logits are read on": (graph_of(then("Identity"), more_outputs=("product",)), LeftAlone.SHARED),
    "the product is read twice": (graph_of(read_twice, more_outputs=("chances",)), LeftAlone.SHARED),
    "the product is read inside of a node": (graph_of(read_inside, more_outputs=("chosen",)), LeftAlone.SHARED),
    "dynamic quantization": (graph_of(quantized), LeftAlone.NO_HEAD),
    "a head of two parts": (graph_of(of_two_parts), LeftAlone.NO_HEAD),
    "a sum over positions": (graph_of(mixing), LeftAlone.NO_HEAD),
    "a bias of positions": (graph_of(then("Add", numbers(1, 3, 8))), LeftAlone.NO_HEAD),
    "softmax": (graph_of(then("Softmax", axis=1)), LeftAlone.NO_HEAD),
    "a cast": (graph_of(then("Cast", to=TensorProto.FLOAT)), LeftAlone.NO_HEAD),
    "a head of another kind": (graph_of(head="Einsum", equation="bsh,hv->bsv"), LeftAlone.NO_HEAD),
    "a head whose input is turned": (graph_of(head="FusedMatMul", transA=1), LeftAlone.NO_HEAD),
    "a scale before the head": (graph_of(before=then("Mul", numbers())), LeftAlone.FUSED),
    "a transposition before the head": (graph_of(before=then("Transpose", perm=[0, 1, 2])), LeftAlone.FUSED),
}


@pytest.mark.parametrize("case", LEFT)
def test_graphs_that_are_left_alone(case: str) -> None:
    model, reason = LEFT[case]
    assert with_logits_from(model.SerializeToString(), "logits", ALWAYS) is reason


def test_a_weight_before_the_head_is_a_norms() -> None:
    model = graph_of(before=then("Mul", numbers(4)))
    assert isinstance(with_logits_from(model.SerializeToString(), "logits", ALWAYS), bytes)


def test_files_that_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.onnx"
    assert with_logits_from(file, "logits", ALWAYS) is LeftAlone.UNREADABLE
    file.write_bytes(graph_of().SerializeToString())
    assert isinstance(with_logits_from(file, "logits", ALWAYS), bytes)
    assert with_logits_from(file, "logits", 3_999_999) is LeftAlone.SMALL
    assert with_logits_from(file, "scores", ALWAYS) is LeftAlone.LAST_ONLY
    monkeypatch.setattr(last_positions, "MOST_BYTES", 100)
    assert with_logits_from(file, "logits", ALWAYS) is LeftAlone.LARGE


def test_a_tiny_model_and_a_pruned_one_are_left_alone(folders: Callable[[str], Path], tiny_folder: Path) -> None:
    assert not genai_lab.Model(folders("fp32")).session._has_logits_from
    assert with_logits_from(tiny_folder / "model.onnx", "logits", ALWAYS) is LeftAlone.LAST_ONLY


# ---- bytes ------------------------------------------------------------------------------------------------------

WHOLE = graph_of(SOFTCAP).SerializeToString()


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(1, len(WHOLE)))
def test_a_damaged_file_is_left_alone_or_onnxruntimes_to_refuse(place: int, byte: int, length: int) -> None:
    damaged = WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 : length]
    assert isinstance(with_logits_from(damaged, "logits", ALWAYS), bytes | LeftAlone)


def test_graphs_in_graphs_without_end_are_left_alone() -> None:
    graph = message((1, message((2, "y"), (4, "Abs"))))
    for _ in range(3000):
        graph = message((1, message((2, "y"), (4, "If"), (5, message((1, "then_branch"), (6, graph))))))
    whole = GraphBytes(WHOLE)._model
    parts = [(number, value + graph if number == 7 and isinstance(value, bytes) else value) for number, value in whole]
    assert with_logits_from(message(*parts), "logits", ALWAYS) is LeftAlone.UNREADABLE


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 2**64 - 1) | st.binary(max_size=300))))
def test_messages_come_back_as_they_were(parts: list[tuple[int, int | bytes]]) -> None:
    assert list(fields(message(*parts))) == parts


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05ab", b"\x08\xff", b"\x0b", b"\x0d\x00", b"\x08" + b"\xff" * 11])
def test_messages_that_are_cut_or_damaged(data: bytes) -> None:
    with pytest.raises(ValueError, match="protobuf message"):
        list(fields(data))


def test_numbers_of_four_and_eight_bytes_are_passed_over() -> None:
    assert list(fields(b"\x0d\0\0\0\0\x11\0\0\0\0\0\0\0\0\x18\x05")) == [(3, 5)]
