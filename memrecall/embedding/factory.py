"""The factory that makes an embedder from a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memrecall.plugins import require_plugin
from memrecall.settings import OPENAI

if TYPE_CHECKING:
    from memrecall.embedding.protocol import Embedder

CHOICES = ("local", "none", "hash", "openai:MODEL", "sentence-transformers:NAME", "fastembed:NAME")


def make_embedder(
    spec: str = "local", *, base_url: str | None = None, api_key: str | None = None
) -> Embedder | None:
    """Return the embedder that `spec` names, its model not loaded yet; None for "none".

    `base_url` and `api_key` are for "openai:MODEL", which means any server with OpenAI's
    /embeddings endpoint. Other names are those of plugins.
    """
    from memrecall.embedding import local

    match spec.partition(":"):
        case ("none", "", ""):
            return None
        case ("local", "", ""):
            return local.LocalEmbedder()
        case ("hash", "", ""):
            return local.HashEmbedder()
        case ("openai", ":", str(name)) if name:
            from memrecall.embedding.remote import RemoteEmbedder

            return RemoteEmbedder(base_url or OPENAI, name, api_key)
        case ("sentence-transformers", ":", str(name)) if name:
            return local.SentenceTransformersEmbedder(name)
        case ("fastembed", ":", str(name)) if name:
            return local.FastEmbedEmbedder(name)
    make, rest = require_plugin("embedders", spec, CHOICES)
    embedder: Embedder = make(rest, base_url, api_key)
    return embedder
