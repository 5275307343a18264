"""Embedders: the interface, and the factory that makes one from a setting.

The embedders are in `local` and `remote`. Importing this package loads none of them:
no numpy, no model, no HTTP client.
"""

from memrecall.embedding.protocol import Embedder, Vectors, make_embedder

__all__ = ["Embedder", "Vectors", "make_embedder"]
