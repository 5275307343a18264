"""memrecall: a colleague that recalls, for LLM agents."""

__version__ = "0.1.0"
