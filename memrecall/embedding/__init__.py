"""Embedders: the interface, and the factory that makes one from a setting.

Importing this package loads no numpy, no model and no HTTP client.
"""

from memrecall.embedding.base import Embedder, Vectors
from memrecall.embedding.embedders import make_embedder

__all__ = ["Embedder", "Vectors", "make_embedder"]
