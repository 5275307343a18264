"""Texts as vectors: what an embedder promises, and how to get one.

- `Embedder` is the promise and `Vectors` is what it gives.
- `make_embedder` turns a setting such as "local" or "openai:MODEL" into an embedder.

The embedders live in `local`, `remote`, `libraries` and `hashing`. Importing this package loads
none of them: no numpy, no model, no HTTP client.
"""

from memrecall.embedding.factory import make_embedder
from memrecall.embedding.protocol import Embedder, Vectors

__all__ = ["Embedder", "Vectors", "make_embedder"]
