from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from genai_lab.config import Config
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, StateError, TemplateError
from genai_lab.tokenizer import Tokenizer
from genai_lab.types import Tensor
from tests.tokenizer.kinds import KINDS, TEXTS, byte_level, llama, save_folder

HELLO = "Hello world"


@pytest.mark.parametrize("kind", KINDS)
def test_encode_and_decode_are_the_librarys(kind: str, folders: dict[str, Path]) -> None:
    backend, tokenizer = Backend.from_file(str(folders[kind] / "tokenizer.json")), Tokenizer(folders[kind])
    for text in [*TEXTS, "", "<s>Hello</s>", "  two  spaces "]:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32
        assert ids.tolist() == backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == backend.decode(ids.tolist(), skip_special_tokens=True)


def test_made_from_a_path_a_config_or_a_model(folders: dict[str, Path]) -> None:
    folder = folders["byte_level"]
    model = SimpleNamespace(config=Config(folder))
    for source in (str(folder), folder, model.config, model):
        assert Tokenizer(source).encode(HELLO).size
    with pytest.raises(ArgumentTypeError, match=r"is given int; a Model, a Config or the path"):
        Tokenizer(3)  # type: ignore[arg-type]


def test_truncation_and_padding_of_the_file_are_not_used(tmp_path: Path) -> None:
    made = byte_level()
    made.enable_truncation(2)
    made.enable_padding(length=10)
    tokenizer = Tokenizer(save_folder(made, tmp_path / "model"))
    assert tokenizer.decode(tokenizer.encode("Hello world again")) == "Hello world again"


def test_batches_are_filled_up_on_the_right(tokenizer: Tokenizer) -> None:
    texts = ["Hello world, this", "a", ""]
    batch = tokenizer.encode_batch(texts)
    rows = [tokenizer.encode(text).tolist() for text in texts]
    longest = max(map(len, rows))
    assert batch.shape() == [3, longest]
    assert batch.type() == np.int32
    assert batch.as_numpy().tolist() == [row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows]
    assert tokenizer.decode_batch(batch) == texts
    assert tokenizer.decode_batch(rows) == texts
    assert tokenizer.encode_batch([""]).shape() == [1, 0]


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([[1, 2], [3, 4]], ArgumentError, r"shape \(2, 2\); one sequence"),
        ([[[1, 2]]], ArgumentError, r"shape \(1, 1, 2\); one sequence"),
        (True, ArgumentTypeError, "ids is bool"),
        ("12", ArgumentTypeError, "ids is str"),
        ([1.5], ArgumentTypeError, "ids holds float64"),
        ([True], ArgumentTypeError, "ids holds booleans"),
        ([None], ArgumentTypeError, "ids holds object"),
        ([-1], ArgumentError, "the token id -1; 0 to"),
        ([10**6], ArgumentError, "the token id 1000000; 0 to"),
        ([2**70], ArgumentError, "beyond 64 bits"),
        ([1, [2]], ArgumentError, "ragged"),
        (np.array([2.0]), ArgumentTypeError, "ids holds float64"),
        (np.array([-3]), ArgumentError, "the token id -3"),
        (np.array(3), ArgumentError, r"shape \(\)"),
    ],
)
def test_wrong_ids(tokenizer: Tokenizer, ids: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tokenizer.decode(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[[5, 9, 20]], np.array([[5, 9, 20]]), Tensor(np.array([[5, 9, 20]], np.int32))])
def test_the_only_row_of_a_batch_is_a_sequence(tokenizer: Tokenizer, ids: object) -> None:
    assert tokenizer.decode(ids) == tokenizer.decode([5, 9, 20]) != ""  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[], (), np.array([]), np.array([], np.int32), Tensor(np.zeros(0, np.int32))])
def test_no_ids_are_no_text(tokenizer: Tokenizer, ids: object) -> None:
    assert tokenizer.decode(ids) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.uint64])
def test_ids_of_any_integer_type(tokenizer: Tokenizer, dtype: type) -> None:
    ids: np.ndarray = np.array([70, 71, 72], dtype)
    assert tokenizer.decode(ids) == tokenizer.decode(ids.tolist()) == tokenizer.decode(Tensor(ids))
    assert tokenizer.decode(list(ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("a\0b", ArgumentError, "text has a NUL character at 1"),
        ("ab\ud83d", ArgumentError, "half a surrogate pair at 2"),
        (b"ab", ArgumentTypeError, "text is bytes"),
        (None, ArgumentTypeError, "text is NoneType"),
    ],
)
def test_wrong_text(tokenizer: Tokenizer, text: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tokenizer.encode(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "error", "words"),
    [
        ([], ArgumentError, "texts is empty"),
        ("abc", ArgumentTypeError, "texts is str"),
        (["a", 1], ArgumentTypeError, r"texts\[1\] is int"),
        (["a", "\0"], ArgumentError, r"texts\[1\] has a NUL"),
    ],
)
def test_wrong_batches(tokenizer: Tokenizer, texts: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tokenizer.encode_batch(texts)  # type: ignore[arg-type]


def test_wrong_sequences(tokenizer: Tokenizer) -> None:
    with pytest.raises(ArgumentError, match=r"shape \(2,\); two axes"):
        tokenizer.decode_batch(np.array([1, 2]))
    with pytest.raises(ArgumentTypeError, match="sequences is int"):
        tokenizer.decode_batch(5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"sequences\[1\] holds the token id -1"):
        tokenizer.decode_batch([[1], [-1]])


def test_tokens_by_their_written_form(tokenizer: Tokenizer) -> None:
    assert tokenizer.to_token_id("</s>") == 2
    assert tokenizer.decode([tokenizer.to_token_id("Ġ")]) == " "
    with pytest.raises(ArgumentError, match=r"'<\|im_end\|>' is not one token .* such as '<\|im_start\|>'"):
        tokenizer.to_token_id("<|im_end|>")


def test_marks(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id) == (1, 0)
    assert tokenizer.eos_token_ids.tolist() == [2]
    assert tokenizer.eos_token_ids.dtype == np.int32
    for name in ("bot_token_id", "eot_token_id", "bor_token_id", "eor_token_id"):
        with pytest.raises(StateError, match=f"{name} is not defined"):
            getattr(tokenizer, name)
    folder = save_folder(byte_level(), tmp_path / "marks")
    config = Config(folder)
    config.overlay('{"model": {"bot_token_id": 5, "eos_token_id": [2, 3]}}')
    assert Tokenizer(config).bot_token_id == 5
    assert Tokenizer(config).eos_token_ids.tolist() == [2, 3]


def test_options(tokenizer: Tokenizer) -> None:
    ids = [1, *tokenizer.encode(HELLO).tolist(), 2]
    assert tokenizer.decode(ids) == HELLO
    for value in (False, "false", "0", 0):
        tokenizer.update_options(skip_special_tokens=value)
        assert tokenizer.decode(ids) == f"<s>{HELLO}</s>"
        tokenizer.update_options(skip_special_tokens=True)
        assert tokenizer.decode(ids) == HELLO


def test_special_tokens_are_added_on_demand(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    made = llama()
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = Tokenizer(save_folder(made, tmp_path / "model"))
    plain = tokenizer.encode(HELLO).tolist()
    tokenizer.update_options(add_special_tokens="true")
    assert tokenizer.encode(HELLO).tolist() == [1, *plain]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no option is given"),
        ({"skip": True}, "Invalid tokenizer option key: skip; add_special_tokens and"),
        ({"skip_special_tokens": "maybe"}, "skip_special_tokens is 'maybe'; True or False"),
        ({"skip_special_tokens": 2}, "skip_special_tokens is 2"),
        ({"skip_special_tokens": False, "add_special_tokens": None}, "add_special_tokens is None"),
    ],
)
def test_wrong_options_change_nothing(tokenizer: Tokenizer, options: dict[str, bool], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        tokenizer.update_options(**options)
    assert tokenizer.decode([1]) == ""


# ---- how single tokens are shown


def test_pieces_of_bytes(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    pieces = [tokenizer.piece(token_id) for token_id in tokenizer.encode("a 🚀").tolist()]
    assert "".join(pieces).startswith("a <0xF0>")
    assert tokenizer.piece(1) == "<s>"
    assert tokenizer.is_special(1)
    assert not tokenizer.is_special(tokenizer.to_token_id("<think>"))
    assert tokenizer.piece(tokenizer.to_token_id("NOT SPECIAL")) == "NOT SPECIAL"


@pytest.mark.parametrize(
    ("kind", "written", "piece"),
    [
        ("llama", "▁the", " the"),
        ("llama", "<0x41>", "A"),
        ("llama", "<0xF0>", "<0xF0>"),
        ("unigram", "▁the", " the"),
        ("unigram", "<0xF0>", "<0xF0>"),
        ("word_piece", "##e", "e"),
        ("word_piece", "world", " world"),
        ("word_ends", "world</w>", "world"),
        ("without_decoder", "world", "world"),
    ],
)
def test_pieces_by_kind(kind: str, written: str, piece: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[kind]
    if kind == "without_decoder":
        written = piece = "world,"
    assert tokenizer.piece(tokenizer.to_token_id(written)) == piece


def test_every_token_has_a_piece(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        for token_id in range(tokenizer.vocabulary.size):
            piece = tokenizer.piece(token_id)
            assert "\ufffd" not in piece
            piece.encode("utf-8")


# ---- files


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    folder = save_folder(byte_level(), tmp_path / "model")
    path = folder / "tokenizer.json"
    whole = path.read_text(encoding="utf-8")
    for broken in (
        "",
        "{",
        "[]",
        '{"model": {}}',
        whole[: len(whole) // 2],
        whole.replace('"ByteLevel"', '"Nonsense"'),
    ):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(ModelFolderError, match=r"tokenizer.json: not a tokenizer that can be used"):
            Tokenizer(folder)
    path.unlink()
    with pytest.raises(ModelFolderError, match=r"tokenizer.json: not found"):
        Tokenizer(folder)


def test_the_tokenizers_folder_may_be_another(tmp_path: Path) -> None:
    folder = save_folder(byte_level(), tmp_path / "model")
    (folder / "words").mkdir()
    (folder / "tokenizer.json").rename(folder / "words" / "tokenizer.json")
    config = Config(folder)
    config.overlay('{"model": {"tokenizer_dir": "words"}}')
    assert Tokenizer(config).encode(HELLO).size
    for name in ("/words", "sha256:ab"):
        config.overlay(json.dumps({"model": {"tokenizer_dir": name}}))
        with pytest.raises(ModelFolderError, match="tokenizer_dir is"):
            Tokenizer(config)


# ---- chat templates of a folder

MESSAGES = [{"role": "user", "content": "Hi"}]


def test_the_models_template(tokenizer: Tokenizer) -> None:
    assert tokenizer.apply_chat_template(MESSAGES) == "<s><|user|>Hi</s><|assistant|>"
    assert tokenizer.apply_chat_template(json.dumps(MESSAGES), add_generation_prompt=False) == "<s><|user|>Hi</s>"
    assert tokenizer.apply_chat_template(MESSAGES, template_str="", tools="") == "<s><|user|>Hi</s><|assistant|>"
    assert tokenizer.apply_chat_template(MESSAGES, template_str="{{ x }}|{{ unk_token }}", x=3) == "3|<unk>"


def test_templates_by_name_and_from_files(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools|length }} tools"}]
    folder = save_folder(byte_level(), tmp_path / "model", chat_template=named)
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert Tokenizer(folder).apply_chat_template(MESSAGES) == "plain"
    assert Tokenizer(folder).apply_chat_template(MESSAGES, tools=tools) == "1 tools"
    assert (
        Tokenizer(folder).apply_chat_template(MESSAGES, template_str="tool_use", tools=json.dumps(tools)) == "1 tools"
    )
    (folder / "chat_template.jinja").write_text("from the file", encoding="utf-8")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("with documents", encoding="utf-8")
    assert Tokenizer(folder).apply_chat_template(MESSAGES) == "from the file"
    assert Tokenizer(folder).apply_chat_template(MESSAGES, template_str="rag") == "with documents"


def test_a_folder_without_a_template(tmp_path: Path) -> None:
    folder = save_folder(byte_level(), tmp_path / "model", chat_template=None)
    with pytest.raises(TemplateError, match=r"no default chat template \(chat_template.jinja, or"):
        Tokenizer(folder).apply_chat_template(MESSAGES)
    folder = save_folder(byte_level(), tmp_path / "model", chat_template=[{"name": "rag", "template": "x"}])
    with pytest.raises(TemplateError, match="no default chat template, only 'rag'"):
        Tokenizer(folder).apply_chat_template(MESSAGES)
    folder = save_folder(byte_level(), tmp_path / "model", chat_template=[1])
    with pytest.raises(ModelFolderError, match="chat_template is list"):
        Tokenizer(folder)


def test_special_tokens_may_be_objects_or_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    folder = save_folder(byte_level(), tmp_path / "model", bos_token={"content": "<B>"}, eos_token=None)
    (folder / "special_tokens_map.json").write_text(
        '{"cls_token": "<C>", "additional_special_tokens": ["<a>", {"content": "<b>"}]}', encoding="utf-8"
    )
    template = "{{ bos_token }}{{ eos_token }}{{ cls_token }}{{ additional_special_tokens|join }}"
    assert Tokenizer(folder).apply_chat_template(MESSAGES, template_str=template) == "<B><C><a><b>"
