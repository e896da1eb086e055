"""What a model with a draft must be for speculation, as far as its config tells."""

from __future__ import annotations

from genai_lab.config import Config, DecoderConfig
from genai_lab.errors import ModelFolderError


def check_speculative(config: Config) -> None:
    """Raises ModelFolderError when target and draft cannot work together; nothing for a model without a draft."""
    model = config.model
    if model.draft is None and model.type != "speculative":
        return
    if model.draft is None or not model.draft.filename:
        raise _error(config, "model.draft.filename is not set; a model of type speculative needs a draft decoder")
    if model.vision is not None or model.speech is not None:
        raise _error(config, "a multimodal model cannot speculate; leave model.draft out")
    for name, decoder in (("decoder", model.decoder), ("draft", model.draft)):
        _check_decoder(config, name, decoder)


def _check_decoder(config: Config, name: str, decoder: DecoderConfig) -> None:
    window = decoder.sliding_window
    if decoder.inputs.past_names is not None:
        raise _error(
            config,
            f"model.{name} keeps keys and values together (past_names); speculation needs the separate key/value "
            "KV-cache format (past_key_names, past_value_names)",
        )
    if window is not None and window.get("slide_key_value_cache", True):
        raise _error(
            config, f"model.{name} has a sliding-window KV cache, which cannot be rewound; leave model.draft out"
        )
    if any(kind == "conv" for kind in decoder.layer_types):
        raise _error(config, f"model.{name} has layers with a state of their own (LFM2), which cannot be rewound")
    if decoder.pipeline:
        raise _error(config, f"model.{name} is a pipeline of stages; speculation needs one graph")


def _error(config: Config, words: str) -> ModelFolderError:
    return ModelFolderError(f"genai_config.json of {str(config.folder)!r}: {words}")
