"""A folder's files -> the graph that runs: one file, stages in a row, or an embedding before a decoder; an encoder
beside it."""

from __future__ import annotations

from genai_lab.config import Config
from genai_lab.models.embedding import open_embedded
from genai_lab.models.graph import check_graph, managed_names
from genai_lab.models.handed import handed_on
from genai_lab.models.pipeline import open_stages
from genai_lab.models.session import Graph, Session, open_decoder, open_session


def open_graph(config: Config) -> Graph:
    """Load the decoder's files and hold them against the config.

    Raises:
        ModelFolderError: a file is missing or damaged, or has not what the config names.
    """
    graph = _open(config)
    check_graph(graph, config)
    return graph


def open_encoder(config: Config, decoder: Graph) -> Session | None:
    """The encoder of a model that has one; its options are its own, else the decoder's.

    Raises:
        ModelFolderError: as above, or it does not fit its decoder.
    """
    section = config.model.encoder
    if section is None or not section.get("filename"):
        return None
    encoder = open_session(config, section["filename"], section.get("session_options"), "model.encoder.filename")
    handed_on(encoder, decoder, config)
    return encoder


def _open(config: Config) -> Graph:
    if config.model.decoder.pipeline:
        return open_stages(config, managed_names(config))
    if config.model.embedding is not None and config.model.embedding.get("filename"):
        return open_embedded(config)
    if config.model.encoder is not None:
        return open_session(config, config.model.decoder.filename)
    return open_decoder(config)
