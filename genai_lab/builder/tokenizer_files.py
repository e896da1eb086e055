"""Write tokenizer.json and its companions from a GGUF file's metadata.

Receives the metadata. Returns the special tokens' ids; leaves `tokenizer.json`, `tokenizer_config.json`,
`special_tokens_map.json` and, if there is one, `chat_template.jinja` in the folder. It does not know the graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from genai_lab.errors import ModelFolderError

CONTROL, USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type: special tokens, and plain text that is never split


@dataclass(frozen=True)
class SpecialTokens:
    """Token ids with a meaning of their own."""

    bos: int
    eos: int
    pad: int
    unk: int | None


@dataclass(frozen=True)
class Vocabulary:
    """The checked part of the metadata that makes a tokenizer."""

    tokens: list[str]
    token_types: list[int]
    merges: list[tuple[str, str]]
    pre_tokenizer: str
    special: SpecialTokens
    add_bos: bool
    add_eos: bool
    chat_template: str | None


def _byte_level() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


PRE_TOKENIZERS: Final[
    dict[str, Callable[[], pre_tokenizers.PreTokenizer]]
] = {  # GGUF's name of how text is cut before the merges
    "gpt-2": _byte_level,
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()]),
}


def write_tokenizer(metadata: Mapping[str, Any], vocab_size: int, context_length: int, folder: Path) -> SpecialTokens:
    """Write the tokenizer's files."""
    vocabulary = read_vocabulary(metadata, vocab_size)
    make_tokenizer(vocabulary).save(str(folder / "tokenizer.json"), pretty=False)
    names = _special_token_names(vocabulary)
    _write_json(folder / "special_tokens_map.json", names)
    config = {
        **names,
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": vocabulary.add_eos,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        "tokenizer_class": "GPT2Tokenizer",
    }
    if vocabulary.chat_template is not None:
        config["chat_template"] = vocabulary.chat_template
        (folder / "chat_template.jinja").write_text(vocabulary.chat_template, encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", config)
    return vocabulary.special


def make_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """A byte-level BPE tokenizer."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    try:
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=vocabulary.merges))
    except Exception as error:  # the tokenizers package raises bare Exception
        raise ModelFolderError(f"metadata tokenizer.ggml.merges do not fit tokenizer.ggml.tokens: {error}.") from error
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[vocabulary.pre_tokenizer]()
    tokenizer.decoder = decoders.ByteLevel()
    for kind, add in ((CONTROL, tokenizer.add_special_tokens), (USER_DEFINED, tokenizer.add_tokens)):
        pairs = zip(vocabulary.tokens, vocabulary.token_types, strict=True)
        add([AddedToken(token, special=kind == CONTROL, normalized=False) for token, its in pairs if its == kind])
    return tokenizer


def read_vocabulary(metadata: Mapping[str, Any], vocab_size: int) -> Vocabulary:
    """Check the tokenizer's metadata."""
    kind, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2":
        raise ModelFolderError(f"metadata tokenizer.ggml.model is {kind!r}; only byte-level BPE, 'gpt2', is supported.")
    if cut not in PRE_TOKENIZERS:
        raise ModelFolderError(f"metadata tokenizer.ggml.pre is {cut!r}; supported are {', '.join(PRE_TOKENIZERS)}.")
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu":
        raise ModelFolderError("metadata tokenizer.ggml.token_type is missing or not an array of whole numbers.")
    if not len(tokens) == len(types) == vocab_size or len(set(tokens)) != vocab_size:
        raise ModelFolderError(
            f"metadata holds {len(tokens)} tokens ({len(set(tokens))} different) and {len(types)} token types; "
            f"the embedding has {vocab_size} rows."
        )
    merges = [_merge(entry) for entry in _strings(metadata, "tokenizer.ggml.merges")]
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise ModelFolderError(f"metadata tokenizer.chat_template is a {type(template).__name__}; text is needed.")
    return Vocabulary(
        tokens,
        types.tolist(),
        merges,
        cut,
        _special_tokens(metadata, vocab_size),
        bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
        template,
    )


def _special_tokens(metadata: Mapping[str, Any], vocab_size: int) -> SpecialTokens:
    def token_id(name: str) -> int | None:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if value is not None and not (isinstance(value, int) and 0 <= value < vocab_size):
            raise ModelFolderError(
                f"metadata tokenizer.ggml.{name}_token_id is {value!r}; there are {vocab_size} tokens."
            )
        return value

    eos = token_id("eos")
    if eos is None:
        raise ModelFolderError("metadata tokenizer.ggml.eos_token_id is missing: generation could not end.")
    bos, pad = token_id("bos"), token_id("padding")
    return SpecialTokens(eos if bos is None else bos, eos, eos if pad is None else pad, token_id("unknown"))


def _special_token_names(vocabulary: Vocabulary) -> dict[str, str]:
    special, tokens = vocabulary.special, vocabulary.tokens
    names = {"bos_token": tokens[special.bos], "eos_token": tokens[special.eos], "pad_token": tokens[special.pad]}
    return names if special.unk is None else {**names, "unk_token": tokens[special.unk]}


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = metadata.get(key)
    if not isinstance(values, list):  # lists are of strings; numbers come as arrays
        raise ModelFolderError(f"metadata {key} is missing or not a list of strings.")
    return values


def _merge(entry: str) -> tuple[str, str]:
    left, _, right = entry.partition(" ")
    if not left or not right:
        raise ModelFolderError(f"metadata tokenizer.ggml.merges holds {entry!r}; two tokens and a space are needed.")
    return left, right


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
