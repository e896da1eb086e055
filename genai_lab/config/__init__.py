"""What a model folder says about itself, and how a person wants to run it.

    json_values      typed values out of unchecked JSON; every error names its place
    sections         dataclasses as sections of a JSON file
    providers        names of execution providers; which of them work here
    session_options  threads, memory, providers of one model file
    model_config     the model, engine and speculative sections
    other_sections   sections known and kept, not used yet
    search           search options: names, types, ranges, defaults
    config           Config: genai_config.json with the changes made to it

No model is loaded and no session made here.
"""

from genai_lab.config.config import Config
from genai_lab.config.model_config import DecoderConfig, EngineConfig, ModelConfig, SpeculativeConfig
from genai_lab.config.providers import check_providers, normalize_provider
from genai_lab.config.search import SearchOptions
from genai_lab.config.session_options import ProviderOptions, SessionOptions

__all__ = [
    "Config",
    "DecoderConfig",
    "EngineConfig",
    "ModelConfig",
    "ProviderOptions",
    "SearchOptions",
    "SessionOptions",
    "SpeculativeConfig",
    "check_providers",
    "normalize_provider",
]
