"""Pure functions on text: no I/O, no state."""

from memrecall.text.tokens import TEXT_VERSION, Analysis, analyze, locate

__all__ = ["TEXT_VERSION", "Analysis", "analyze", "locate"]
