"""The tokenizer's files in a model folder: tokenizer.json, tokenizer_config.json, special_tokens_map.json and the chat
template's files.

Receives a folder, returns what the files say. Sizes are checked before reading. It renders no template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tokenizers import Tokenizer as Backend

from genai_lab.config.json_values import parse_object, read_bounded
from genai_lab.errors import ModelFolderError
from genai_lab.tokenizer.guard import guarded

MAX_TOKENIZER_BYTES: Final = 256 * 2**20
MAX_CONFIG_BYTES: Final = 64 * 2**20
MAX_TEMPLATE_BYTES: Final = 1 * 2**20

_SPECIAL_NAMES: Final = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip

SpecialTokens: TypeAlias = Mapping[str, str | list[str]]
"""`bos_token` and its like, as text; `additional_special_tokens` is a list."""


@dataclass(frozen=True)
class TokenizerFiles:
    """What the files of a model folder say about its tokenizer."""

    backend: Any
    """The `tokenizers.Tokenizer` itself."""
    special_tokens: SpecialTokens
    chat_templates: Mapping[str, str]
    """By name; the usual one is `default`."""


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Read the tokenizer of a model folder.

    Raises:
        ModelFolderError: a file is missing, too large, or not what it should be; the message names it.
    """
    backend = _load_backend(folder / "tokenizer.json")
    config = _optional_object(folder / "tokenizer_config.json")
    special_map = _optional_object(folder / "special_tokens_map.json")
    return TokenizerFiles(backend, _special_tokens({**special_map, **config}), _chat_templates(folder, config))


def _load_backend(path: Path) -> Any:
    if not path.is_file():
        raise ModelFolderError(
            f"{path}: not found. genai_lab reads the tokenizer from tokenizer.json; copy it from the model's "
            f"repository, or save the fast tokenizer there."
        )
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise ModelFolderError(f"{path}: larger than {MAX_TOKENIZER_BYTES:,} bytes, which is the most allowed.")
    backend = guarded(lambda: Backend.from_file(str(path)), f"{path}: not a tokenizer that can be used")
    backend.no_truncation()  # both belong to training; encoding gives every token and nothing else
    backend.no_padding()
    return backend


def _optional_object(path: Path) -> dict[str, Any]:
    return parse_object(read_bounded(path, MAX_CONFIG_BYTES), str(path)) if path.is_file() else {}


def _special_tokens(config: Mapping[str, Any]) -> SpecialTokens:
    tokens: dict[str, str | list[str]] = {}
    for name, value in config.items():
        if name in _SPECIAL_NAMES and (text := _content(value)) is not None:
            tokens[name] = text
        elif name == "additional_special_tokens" and isinstance(value, list):
            tokens[name] = [text for item in value if (text := _content(item)) is not None]
    return tokens


def _content(token: object) -> str | None:
    """A special token is written as text, or as an object with the text under `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name. A template in a file of its own goes before the one in tokenizer_config.json."""
    templates = _templates_of_config(config.get("chat_template"), folder / "tokenizer_config.json")
    if (alone := folder / "chat_template.jinja").is_file():
        templates["default"] = _template_text(alone)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = _template_text(path)
    return templates


def _templates_of_config(value: object, path: Path) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    named = value if isinstance(value, list) else [value]
    entries = [item for item in named if isinstance(item, dict) and {"name", "template"} <= item.keys()]
    if len(entries) == len(named):
        return {str(item["name"]): str(item["template"]) for item in entries}
    raise ModelFolderError(
        f"{path}: chat_template is {type(value).__name__}; a string, or an array of objects with name and template, is "
        f"allowed."
    )


def _template_text(path: Path) -> str:
    try:
        return read_bounded(path, MAX_TEMPLATE_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path}: not UTF-8 text at byte {error.start}. Save it as UTF-8.") from error
