"""A model folder, loaded: its config, its session, what it expects and what it gives."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from genai_lab.config import Config
from genai_lab.errors import ArgumentTypeError, StateError
from genai_lab.grammar import GrammarCompiler
from genai_lab.kvcache import KVLayout
from genai_lab.lifecycle import Closing, born, died
from genai_lab.models.embedding import Embedded
from genai_lab.models.encoders import Encoder
from genai_lab.models.grammar_tokens import token_table
from genai_lab.models.graph import appends_in_place, fixed_names, one_shape, past_names, past_shape
from genai_lab.models.opening import open_encoder, open_graph
from genai_lab.models.paged import PagedGraph, is_paged, paged_graph
from genai_lab.models.session import Graph, Session
from genai_lab.models.speculative_config import check_speculative
from genai_lab.models.token_texts import TokenTexts
from genai_lab.processors import MultiModalProcessor, StreamingProcessor
from genai_lab.processors.multimodal import not_multimodal
from genai_lab.processors.streaming import no_streaming

if TYPE_CHECKING:
    from genai_lab.tokenizer import Tokenizer


class Model(Closing):
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
        check_speculative(self.config)
        self._graph: Graph | None = open_graph(self.config)
        self.encoder: Session | None = open_encoder(self.config, self._graph)
        self.token_texts = TokenTexts(self.config)
        draft = self.config.of_draft()
        self.draft: Model | None = None if draft is None else Model(draft)
        born(self, "Model", _file_bytes)

    @property
    def type(self) -> str:
        """The config's model.type, such as "llama"."""
        return self.config.model.type

    @property
    def device_type(self) -> str:
        """Where the model runs; always "CPU"."""
        return "CPU"

    @property
    def graph(self) -> Graph:
        """The loaded graph, of one file or of several."""
        if self._graph is None:
            raise StateError("this Model is closed; load it again to go on")
        return self._graph

    @property
    def session(self) -> Session:
        """The loaded graph of a model of one file, which engines and speculation need."""
        graph = self.graph
        if not isinstance(graph, Session):
            raise StateError(
                f"{self.config.folder.name!r} is a model of several files ({graph.filename}); only a model whose "
                "decoder is one file can be used here. Use a Generator"
            )
        return graph

    @property
    def vocab_size(self) -> int:
        """Length of a row of logits."""
        return self.config.model.vocab_size

    @property
    def encoders(self) -> Mapping[str, Encoder]:
        """The graphs for images and sounds; with one, a prompt may hold negative numbers, which stand for images."""
        return self.graph.encoders if isinstance(self.graph, Embedded) else {}

    @cached_property
    def kv_layout(self) -> KVLayout:
        """Keys and values per token."""
        decoder = self.config.model.decoder
        past = list(past_names(self.graph, self.config))
        dtype = self.graph.inputs[past[0]].dtype.name if past else "float32"
        heads = decoder.num_key_value_heads or decoder.num_attention_heads
        return KVLayout(decoder.num_hidden_layers if past else 0, heads, decoder.head_size, dtype)

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token takes in the cache: its keys and values in every layer that has them."""
        if self.paged is not None:
            return self.paged.bytes_per_token
        sizes = (
            (past_shape(self.config, self.graph.inputs[name], 1, 1), self.graph.inputs[name].dtype.itemsize)
            for name in past_names(self.graph, self.config)
        )
        return sum(math.prod(shape) * size for shape, size in sizes)

    @cached_property
    def paged(self) -> PagedGraph | None:
        """What the graph keeps in blocks that it finds through block tables; None when it has rows of its own.

        Raises:
            ModelFolderError: it wants something that an Engine here does not give.
        """
        return paged_graph(self.graph, self.config) if is_paged(self.graph, self.config) else None

    def check_has_rows(self) -> None:
        """Raises StateError when a Generator cannot run the graph, since only an Engine has blocks to give."""
        if is_paged(self.graph, self.config):
            raise StateError(
                f"{self.graph.filename!r} reads its cache through block tables "
                f"({self.config.model.decoder.inputs.block_table!r}), which only an Engine has: use "
                "genai_lab.Engine(model)"
            )

    @cached_property
    def rewindable(self) -> bool:
        """Whether any earlier place of a text can be gone back to without a snapshot: every layer keeps its tokens
        apart."""
        return self.encoder is None and not fixed_names(self.graph, self.config)

    @cached_property
    def appends_in_place(self) -> bool:
        """Whether the graph writes new keys and values into the memory that holds the past, as GroupQueryAttention
        does. The config may say so (past_present_share_buffer); otherwise it is tried once."""
        graph = self.graph
        if self.encoder is not None or not isinstance(graph, Session) or graph.has_bfloat16:
            return False
        if is_paged(graph, self.config):
            return False
        if fixed_names(graph, self.config) or not one_shape(graph, self.config):
            return False
        return self.config.search_options().past_present_share_buffer or appends_in_place(self.graph, self.config)

    def check_appends_in_place(self) -> None:
        """Raises StateError when several rows cannot live in one slab of memory, as an Engine's do."""
        if not self.appends_in_place:
            raise StateError(
                f"{self.graph.filename!r} does not append to its cache in place (GroupQueryAttention does), or has an "
                "encoder or layers with a state of one size; an Engine cannot run it. Use a Generator"
            )

    @property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer (ours; in onnxruntime-genai one writes Tokenizer(model))."""
        return self.token_texts.tokenizer

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles grammars over this vocabulary, and keeps what it compiled (see `GeneratorParams.set_guidance`)."""
        texts, config = self.token_texts, self.config  # not the model: it would keep itself alive
        return GrammarCompiler(lambda: token_table(texts.tokenizer, config))

    def create_multimodal_processor(self) -> MultiModalProcessor:
        """What prepares prompts for a model that also takes images or sounds; text only, here.

        Raises:
            StateError: a model of text alone.
        """
        sections = self.config.model
        if sections.vision is None and sections.speech is None and sections.type != "whisper":
            raise not_multimodal(self.type)
        return MultiModalProcessor(self.tokenizer)

    def create_streaming_processor(self) -> StreamingProcessor:
        """Would prepare speech while it is heard; not here.

        Raises:
            StateError: always; says why.
        """
        raise no_streaming(self.type)

    def describe(self) -> dict[str, Any]:
        """Facts about the model that a trace keeps: name, vocabulary, bytes a token costs in the cache, threads."""
        return {
            "name": self.graph.name or self.config.folder.name,
            "type": self.type,
            "vocab_size": self.vocab_size,
            "context_length": self.config.model.context_length,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "eos_token_ids": list(self.config.model.eos_token_ids),
            "threads": self.graph.threads,
            "onnxruntime": ort.__version__,
        }

    def close(self) -> None:
        """Free the session. Generators made from this model cannot go on; closing twice is allowed."""
        self._graph = self.encoder = None
        died(self)
        if self.draft is not None:
            self.draft.close()

    def _live(self) -> Graph:
        return self.graph

    def __repr__(self) -> str:
        state = "closed" if self._graph is None else f"vocabulary {self.vocab_size:,}"
        return f"<genai_lab.Model {self.config.folder.name!r}: {self.type}, {state}>"


def _file_bytes(model: Model) -> int:
    """Bytes of the folder's graphs and their weights: about what the sessions hold. A draft's are counted with its
    target's."""
    if model.type == "draft":
        return 0
    files = (path for path in model.config.folder.rglob("*") if _is_graph_file(path.name) and path.is_file())
    return sum(path.stat().st_size for path in files) + sum(map(len, model.config.model_data.values()))


def _is_graph_file(name: str) -> bool:
    return ".onnx" in name or name.endswith(".data")
