"""The version, in its only place: the build reads it from here, `genai_lab.__version__` too."""

__version__ = "0.1.0"
