"""Text to token ids and back, and conversations to prompts, for one model.

Receives text, ids and messages; returns ids and text. The work is the `tokenizers` library's; this room adds what a
caller hands over wrong, the stream and the chat template. It runs no model and records nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError, TemplateError
from genai_lab.tokenizer.chat_template import ChatTemplate, Message, as_messages, as_tools, check_complete
from genai_lab.tokenizer.files import read_tokenizer_files
from genai_lab.tokenizer.guard import guarded
from genai_lab.tokenizer.stream import TokenizerStream
from genai_lab.tokenizer.text import checked_text
from genai_lab.tokenizer.vocabulary import Ids, Vocabulary
from genai_lab.types import Tensor, TokenId


class HasConfig(Protocol):
    """A model, as far as a tokenizer is concerned."""

    @property
    def config(self) -> Config: ...


Source: TypeAlias = HasConfig | Config | str | os.PathLike[str]

_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


class Tokenizer:
    """The tokenizer of a model folder (og class Tokenizer).

    Args:
        source: a model, a `Config`, or the path of a model folder.

    Raises:
        ModelFolderError: a file of the folder is missing or broken.
        ArgumentTypeError: none of the three.

    Example:
        >>> tokenizer = Tokenizer("path/to/model")
        >>> tokenizer.decode(tokenizer.encode("Hello"))
        'Hello'
    """

    def __init__(self, source: Source) -> None:
        self._config = _config_of(source)
        files = read_tokenizer_files(self._config.tokenizer_folder)
        self._backend = files.backend
        self._special_tokens = files.special_tokens
        self._templates = files.chat_templates
        self.vocabulary = Vocabulary(files.backend, self._config.model.vocab_size)
        self._add_special_tokens = False
        self._skip_special_tokens = True
        self._compiled = functools.lru_cache(maxsize=8)(ChatTemplate)

    # ---- text to ids and back

    def encode(self, text: str) -> NDArray[np.int32]:
        """Token ids of a text, [num_tokens]. Special tokens are recognized where the text has them, and not added.

        Raises:
            ArgumentTypeError: not a string.
            ArgumentError: a text with NUL or with half a surrogate pair.
        """
        encoding = self._backend.encode(checked_text(text, "text"), add_special_tokens=self._add_special_tokens)
        return np.array(encoding.ids, dtype=np.int32)

    def _plain_ids(self, text: str) -> list[TokenId]:
        """Token ids of a text without any added at its ends, whatever `update_options` says (ours)."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> Tensor:
        """Token ids of several texts, int32 [len(texts), longest], filled up with `pad_token_id` on the right.

        Raises:
            ArgumentTypeError: not a sequence of strings.
            ArgumentError: no text at all, or one that `encode` refuses.
        """
        if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
            raise ArgumentTypeError(
                f"texts is {type(texts).__name__}; a list of strings is allowed. For one call encode."
            )
        if not texts:
            raise ArgumentError("texts is empty; at least one string is allowed.")
        checked = [checked_text(text, f"texts[{n}]") for n, text in enumerate(texts)]
        encodings = self._backend.encode_batch(checked, add_special_tokens=self._add_special_tokens)
        rows = np.full((len(checked), max(len(e.ids) for e in encodings)), self.pad_token_id, dtype=np.int32)
        for row, encoding in zip(rows, encodings, strict=True):
            row[: len(encoding.ids)] = encoding.ids
        return Tensor(rows)

    def decode(self, ids: Ids) -> str:
        """The text of token ids, [num_tokens], or of one id. Special tokens are left out, see `update_options`.

        Raises:
            ArgumentTypeError: not integers.
            ArgumentError: more than one axis, or an id this model does not have.
        """
        alone = isinstance(ids, int | np.integer) and not isinstance(ids, bool)
        return self._text_of(self.vocabulary.check_ids([ids] if alone else ids))

    def decode_batch(self, sequences: Tensor | NDArray[np.integer[Any]] | Sequence[Ids]) -> list[str]:
        """The texts of several sequences, [num_sequences, num_tokens] or a list of lists of any lengths.

        Raises:
            ArgumentTypeError: not integers.
            ArgumentError: not two axes, or an id this model does not have.
        """
        if isinstance(sequences, Tensor | np.ndarray):
            rows = np.asarray(sequences)
            if rows.ndim != 2:
                raise ArgumentError(
                    f"sequences has the shape {rows.shape}; two axes, [num_sequences, num_tokens], are allowed. For "
                    f"one sequence call decode."
                )
            sequences = list(rows)
        if isinstance(sequences, str | bytes) or not isinstance(sequences, Sequence):
            raise ArgumentTypeError(
                f"sequences is {type(sequences).__name__}; a 2-D tensor or array, or a list of lists, is allowed."
            )
        return [self._text_of(self.vocabulary.check_ids(row, f"sequences[{n}]")) for n, row in enumerate(sequences)]

    def _text_of(self, ids: list[TokenId]) -> str:
        if not ids:
            return ""
        decode = functools.partial(self._backend.decode, ids, skip_special_tokens=self._skip_special_tokens)
        return str(guarded(decode, "the tokenizer cannot decode these ids"))

    def create_stream(self) -> TokenizerStream:
        """A stream that turns ids into text one by one."""
        return TokenizerStream(self)

    def to_token_id(self, token: str) -> TokenId:
        """The id of a token by its written form, such as `<|im_end|>` or `Ġthe`.

        Raises:
            ArgumentError: no such token (onnxruntime-genai says -1 or the unknown token's id).
        """
        return self.vocabulary.id_of(checked_text(token, "token"))

    def piece(self, token_id: int) -> str:
        """What a token alone looks like, for display; see `TokenizerStream.piece`."""
        return self.vocabulary.piece(self.vocabulary.check_id(token_id))

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark, such as the end of a turn, rather than text."""
        return self.vocabulary.check_id(token_id) in self.vocabulary.special_ids

    # ---- options

    def update_options(self, **options: bool | int | str) -> None:
        """Change how text and ids are turned into each other, for this tokenizer from now on.

        Args:
            options: `add_special_tokens` (encode puts the model's own marks around the text; off at first) and
                `skip_special_tokens` (decode leaves them out; on at first). A flag, or "true" and "false" as in
                onnxruntime-genai.

        Raises:
            ArgumentError: an unknown option, none at all, or a value that is no flag; nothing is changed then.
        """
        if not options:
            raise ArgumentError("no option is given; add_special_tokens and skip_special_tokens are allowed.")
        flags = {name: _flag(name, value) for name, value in options.items()}
        self._add_special_tokens = flags.get("add_special_tokens", self._add_special_tokens)
        self._skip_special_tokens = flags.get("skip_special_tokens", self._skip_special_tokens)

    @property
    def hidden_ids(self) -> frozenset[TokenId]:
        """The ids that decoding leaves out: the special tokens, or none."""
        return self.vocabulary.special_ids if self._skip_special_tokens else frozenset()

    # ---- the model's marks

    @property
    def bos_token_id(self) -> TokenId:
        """Beginning of a sequence."""
        return self._config.model.bos_token_id

    @property
    def eos_token_ids(self) -> NDArray[np.int32]:
        """Each of these ends a sequence; [num_eos]."""
        return np.array(self._config.model.eos_token_ids, dtype=np.int32)

    @property
    def pad_token_id(self) -> TokenId:
        """What fills up shorter rows of a batch."""
        return self._config.model.pad_token_id

    @property
    def bot_token_id(self) -> TokenId:
        """Beginning of a tool call. Raises StateError when the model has none."""
        return self._mark("bot_token_id")

    @property
    def eot_token_id(self) -> TokenId:
        """End of a tool call. Raises StateError when the model has none."""
        return self._mark("eot_token_id")

    @property
    def bor_token_id(self) -> TokenId:
        """Beginning of reasoning. Raises StateError when the model has none."""
        return self._mark("bor_token_id")

    @property
    def eor_token_id(self) -> TokenId:
        """End of reasoning. Raises StateError when the model has none."""
        return self._mark("eor_token_id")

    def _mark(self, name: str) -> TokenId:
        token_id: TokenId | None = getattr(self._config.model, name)
        if token_id is None:
            raise StateError(f"{name} is not defined for this model; set model.{name} in genai_config.json.")
        return token_id

    # ---- conversations

    def apply_chat_template(
        self,
        messages: str | Sequence[Message],
        *,
        template_str: str | None = None,
        tools: str | Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> str:
        """A conversation as the prompt that the model was trained on.

        Args:
            messages: the turns, oldest first, as dicts or as their JSON text.
            template_str: a Jinja template, or the name of one of the model's, instead of the model's usual one.
            tools: JSON schemas of functions the model may call, as dicts or as their JSON text.
            add_generation_prompt: end with the start of the model's answer.
            template_kwargs: what else the template understands, such as `enable_thinking=False`.

        Raises:
            TemplateError: there is no template, it fails, or it refuses the messages.
            ArgumentError, ArgumentTypeError: messages or tools are not what they should be, such as a message without
                role or content.

        Example:
            >>> tokenizer = Tokenizer("path/to/model")
            >>> tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
            '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        if template_str is not None and not isinstance(template_str, str):
            raise ArgumentTypeError(
                f"template_str is {template_str!r:.60} ({type(template_str).__name__}); Jinja text, or the name of one "
                f"of the model's templates, is allowed."
            )
        checked, checked_tools = as_messages(messages), as_tools(tools)
        source = self._template_source(template_str, has_tools=checked_tools is not None)
        template = self._compiled(source)
        check_complete(checked, source)
        return template.render(
            checked,
            tools=checked_tools,
            add_generation_prompt=add_generation_prompt,
            special_tokens=self._special_tokens,
            **template_kwargs,
        )

    def _template_source(self, template_str: str | None, *, has_tools: bool) -> str:
        if template_str:
            return self._templates.get(template_str, template_str)
        for name in ("tool_use", "default") if has_tools else ("default",):
            if name in self._templates:
                return self._templates[name]
        names = ", ".join(map(repr, self._templates))
        raise TemplateError(
            f"the model folder {self._config.folder} has no default chat template"
            + (f", only {names}" if names else " (chat_template.jinja, or chat_template in tokenizer_config.json)")
            + ". Pass template_str=."
        )

    def __repr__(self) -> str:
        return f"<genai_lab.Tokenizer {self._config.folder.name!r}: {self.vocabulary.size:,} tokens>"


def _config_of(source: object) -> Config:
    config = getattr(source, "config", source)
    if isinstance(config, str | os.PathLike):
        config = Config(config)
    if not isinstance(config, Config):
        raise ArgumentTypeError(
            f"Tokenizer() is given {type(source).__name__}; a Model, a Config or the path of a model folder is allowed."
        )
    return config


def _flag(name: str, value: object) -> bool:
    if name not in ("add_special_tokens", "skip_special_tokens"):
        raise ArgumentError(
            f"Invalid tokenizer option key: {name:.60}; add_special_tokens and skip_special_tokens are allowed."
        )
    flag = _FLAGS.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if flag is None:
        raise ArgumentError(f"{name} is {value!r:.60}; True or False is allowed.")
    return flag
