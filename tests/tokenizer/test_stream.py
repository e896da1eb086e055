"""The stream's text is the whole text, for every kind of tokenizer, and no piece of it is half a character."""

from __future__ import annotations

import pytest
import tokenizers as library
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError
from genai_lab.tokenizer import Tokenizer
from genai_lab.tokenizer.detokenizer import AllAtTheEnd, Detokenizer, stages_of
from tests.tokenizer.kinds import KINDS, TEXTS

WORDS = st.sampled_from(sorted({word for text in TEXTS for word in text.split()}))
MIXED_TEXT = st.lists(WORDS | st.text(max_size=4), max_size=12).map(" ".join)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = tokenizer.create_stream()
    return "".join([stream.decode(token_id) for token_id in ids]) + stream.flush()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_the_pieces_of_any_ids_are_the_whole_text(
    kind: str, tokenizers: dict[str, Tokenizer], data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary.size - 1), max_size=30))
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(text=MIXED_TEXT)
def test_the_pieces_of_any_text_are_the_whole_text(kind: str, tokenizers: dict[str, Tokenizer], text: str) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(text.replace("\0", "")).tolist()
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_can_be_shown(kind: str, folders: dict[str, object]) -> None:
    tokenizer = Tokenizer(str(folders[kind]))
    tokenizer.update_options(skip_special_tokens=False)
    ids = [1, *tokenizer.encode("Hello world").tolist(), 2]
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)
    assert "<s>" in tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["byte_level", "llama", "unigram"])
@pytest.mark.parametrize("text", ["🧑🏽‍🚀", "विश्व", "Đặng", "龙马", "ñandú", "🇩🇪🇫🇷"])
def test_whole_characters_only(kind: str, text: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[kind]
    stream = tokenizer.create_stream()
    ids = tokenizer.encode(text).tolist()
    pieces = [stream.decode(token_id) for token_id in ids]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) + stream.flush() == text
    assert len(ids) > len(text)  # the characters really were cut into several tokens


def test_text_is_not_kept_back_without_need(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    stream = tokenizer.create_stream()
    ids = tokenizer.encode("你a").tolist()
    assert len(ids) >= 2
    assert [stream.decode(token_id) for token_id in ids][-2:] == ["你", "a"]


def test_an_unfinished_character_is_told_at_the_end(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    first_byte = tokenizer.to_token_id("ð")  # the letter of byte F0
    stream = tokenizer.create_stream()
    assert stream.decode(first_byte) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.decode(tokenizer.to_token_id("H")) == "H"


def test_a_run_of_byte_tokens_is_text_or_all_replaced(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["llama"]
    smile = [tokenizer.to_token_id(f"<0x{byte:02X}>") for byte in "😀".encode()]
    letter = tokenizer.to_token_id("a")
    stream = tokenizer.create_stream()
    assert [stream.decode(token_id) for token_id in [*smile, letter]] == ["", "", "", "", "😀a"]
    assert [stream.decode(token_id) for token_id in [*smile[:3], letter]] == ["", "", "", "\ufffd\ufffd\ufffda"]


def test_after_a_flush_the_stream_begins_anew(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        ids = tokenizer.encode("the world").tolist()
        stream = tokenizer.create_stream()
        rounds = ["".join([stream.decode(token_id) for token_id in ids]) + stream.flush() for _ in range(2)]
        assert rounds == [tokenizer.decode(ids)] * 2


def test_ids_without_a_token_are_empty(tokenizer: Tokenizer) -> None:
    gap = tokenizer.vocabulary.size - 1
    stream = tokenizer.create_stream()
    assert stream.decode(gap) == ""
    assert tokenizer.decode([gap]) == ""
    assert stream.piece(gap) == f"<id {gap}>"


@pytest.mark.parametrize("bad", [True, 1.0, "1", None, [1]])
def test_only_integers(tokenizer: Tokenizer, bad: object) -> None:
    with pytest.raises(ArgumentTypeError, match=r"token_id is .*integer"):
        tokenizer.create_stream().decode(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 10**6, 2**40])
def test_only_ids_of_the_model(tokenizer: Tokenizer, bad: int) -> None:
    with pytest.raises(ArgumentError, match=rf"{bad}; 0 to {tokenizer.vocabulary.size - 1} is allowed"):
        tokenizer.create_stream().decode(bad)


# ---- the chain of stages against the library's decoders


WRITTEN = ["▁", "▁a", "a", "##b", "</w>", "c</w>", "<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", " .", "l", "ll", "Ġ", "aba"]
PIECES = st.lists(st.sampled_from(WRITTEN) | st.text(max_size=3), max_size=10)
DECODERS = {
    "byte level": decoders.ByteLevel(),
    "metaspace": decoders.Metaspace(),
    "metaspace, never": decoders.Metaspace(prepend_scheme="never"),
    "metaspace, other sign": decoders.Metaspace(replacement="a"),
    "word piece": decoders.WordPiece(),
    "word piece, as it is": decoders.WordPiece(prefix="##", cleanup=False),
    "word ends": decoders.BPEDecoder(),
    "ctc": decoders.CTC(pad_token="l"),
    "byte fallback": decoders.ByteFallback(),
    "strip": decoders.Strip("a", 1, 0),
    "replace": decoders.Replace("ll", "x"),
    "replace by pattern": decoders.Replace(library.Regex("l+"), "x"),
    "gemma": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    "llama": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "nested": decoders.Sequence([decoders.Sequence([decoders.ByteFallback()]), decoders.Metaspace()]),
    "strip in the text": decoders.Sequence([decoders.Fuse(), decoders.Strip("a", 2, 0)]),
    "replace in the text": decoders.Sequence([decoders.Fuse(), decoders.Replace("lll", "x")]),
    "overlapping": decoders.Sequence([decoders.Fuse(), decoders.Replace("aba", "x"), decoders.Fuse()]),
    "pattern in the text": decoders.Sequence([decoders.Fuse(), decoders.Replace(library.Regex("l+"), "x")]),
    "words in the text": decoders.Sequence([decoders.Fuse(), decoders.WordPiece()]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=40)
@given(pieces=PIECES)
@example(pieces=["l", "l", "l", "l", "ll"])
@example(pieces=["a", "b", "a", "b", "a"])
@example(pieces=["<0xE4>", "<0xBD>", "<0xA0>"])
@example(pieces=["<0xE4>", "<0xBD>", "a"])
@example(pieces=["<0x+F>", "<0xGG>", "<0x0>"])
def test_stages_do_what_the_library_does(name: str, pieces: list[str]) -> None:
    decoder = DECODERS[name]
    detokenizer = Detokenizer(decoder)
    for _ in range(2):
        assert "".join(map(detokenizer.push, pieces)) + detokenizer.finish() == decoder.decode(pieces)


@pytest.mark.parametrize("pieces", [["ab", "aa", "a"], ["xa", "b"], ["aab", "c", "a"], ["caaaa"]])
def test_the_end_can_be_stripped(pieces: list[str]) -> None:
    decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip("a", 0, 2)])  # the library panics on shorter texts
    detokenizer = Detokenizer(decoder)
    assert "".join(map(detokenizer.push, pieces)) + detokenizer.finish() == decoder.decode(pieces)


def test_a_panic_of_the_library_is_an_error() -> None:
    detokenizer = Detokenizer(decoders.Strip("a", 1, 1))
    with pytest.raises(ModelFolderError, match="the tokenizer's decoder fails"):
        detokenizer.push("a")


def test_usual_decoders_stream() -> None:
    late = {name for name, decoder in DECODERS.items() if isinstance(stages_of(decoder)[0], AllAtTheEnd)}
    assert late == {"pattern in the text", "words in the text"}
