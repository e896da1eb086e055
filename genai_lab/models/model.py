"""A model folder, loaded: its config, its session, what it expects and what it gives."""

from __future__ import annotations

import builtins
import os
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from genai_lab.config import Config
from genai_lab.errors import ArgumentTypeError, StateError
from genai_lab.grammar import GrammarCompiler
from genai_lab.kvcache import KVLayout
from genai_lab.models.grammar_tokens import token_table
from genai_lab.models.graph import appends_in_place, check_graph
from genai_lab.models.session import Session, open_session
from genai_lab.models.token_texts import TokenTexts

if TYPE_CHECKING:
    from genai_lab.tokenizer import Tokenizer


class Model:
    """A decoder-only model of a folder in onnxruntime-genai's format (og class Model).

    Args:
        source: the folder's path, or a `Config` made from it.

    Raises:
        ModelFolderError: the folder, its config or its graph cannot be used; the message names the part.
    """

    def __init__(self, source: str | os.PathLike[str] | Config) -> None:
        if not isinstance(source, str | os.PathLike | Config):
            raise ArgumentTypeError(f"Model() takes a folder's path or a Config, got {type(source).__name__}")
        self.config = source if isinstance(source, Config) else Config(source)
        self._session: Session | None = open_session(self.config, self.config.model.decoder.filename)
        check_graph(self._session, self.config)
        self.token_texts = TokenTexts(self.config)

    @property
    def type(self) -> str:
        """The config's model.type, such as "llama"."""
        return self.config.model.type

    @property
    def device_type(self) -> str:
        """Where the model runs; always "CPU"."""
        return "CPU"

    @property
    def session(self) -> Session:
        """The loaded graph."""
        if self._session is None:
            raise StateError("this Model is closed; load it again to go on")
        return self._session

    @property
    def vocab_size(self) -> int:
        """Length of a row of logits."""
        return self.config.model.vocab_size

    @cached_property
    def kv_layout(self) -> KVLayout:
        """Keys and values per token."""
        decoder = self.config.model.decoder
        first = self.session.inputs[decoder.inputs.past_key_names % 0]
        return KVLayout(decoder.num_hidden_layers, decoder.num_key_value_heads, decoder.head_size, first.dtype.name)

    @cached_property
    def appends_in_place(self) -> bool:
        """Whether the graph writes new keys and values into the memory that holds the past, as GroupQueryAttention
        does. The config may say so (past_present_share_buffer); otherwise it is tried once."""
        return self.config.search_options().past_present_share_buffer or appends_in_place(self.session, self.config)

    @property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer (ours; in onnxruntime-genai one writes Tokenizer(model))."""
        return self.token_texts.tokenizer

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles grammars over this vocabulary, and keeps what it compiled (see `GeneratorParams.set_guidance`)."""
        return GrammarCompiler(lambda: token_table(self.tokenizer, self.config))

    def describe(self) -> dict[str, Any]:
        """Facts about the model that a trace keeps: name, vocabulary, bytes a token costs in the cache, threads."""
        return {
            "name": self.session.name or self.config.folder.name,
            "type": self.type,
            "vocab_size": self.vocab_size,
            "context_length": self.config.model.context_length,
            "kv_bytes_per_token": self.kv_layout.bytes_per_token,
            "eos_token_ids": list(self.config.model.eos_token_ids),
            "threads": self.session.threads,
            "onnxruntime": ort.__version__,
        }

    def close(self) -> None:
        """Free the session. Generators made from this model cannot go on; closing twice is allowed."""
        self._session = None

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: builtins.type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._session is None else f"vocabulary {self.vocab_size:,}"
        return f"<genai_lab.Model {self.config.folder.name!r}: {self.type}, {state}>"
