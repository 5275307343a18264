"""From a setting to an embedder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memrecall.plugins import require_plugin
from memrecall.settings import OPENAI

if TYPE_CHECKING:
    from memrecall.embedding.protocol import Embedder

CHOICES = (
    "local",
    "none",
    "hash",
    "openai:MODEL",
    "sentence-transformers:NAME",
    "fastembed:NAME",
)


def make_embedder(
    spec: str = "local", *, base_url: str | None = None, api_key: str | None = None
) -> Embedder | None:
    """Make the embedder that `spec` names, without loading its model; "none" gives None.

    `base_url` and `api_key` matter to "openai:MODEL" alone, which means any server that speaks
    OpenAI's /embeddings. Other names are those of plugins.
    """
    match spec.partition(":"):
        case ("none", "", ""):
            return None
        case ("local", "", ""):
            from memrecall.embedding.local import LocalEmbedder

            return LocalEmbedder()
        case ("hash", "", ""):
            from memrecall.embedding.local import HashEmbedder

            return HashEmbedder()
        case ("openai", ":", str(name)) if name:
            from memrecall.embedding.remote import RemoteEmbedder

            return RemoteEmbedder(base_url or OPENAI, name, api_key)
        case ("sentence-transformers", ":", str(name)) if name:
            from memrecall.embedding.libraries import SentenceTransformersEmbedder

            return SentenceTransformersEmbedder(name)
        case ("fastembed", ":", str(name)) if name:
            from memrecall.embedding.libraries import FastEmbedEmbedder

            return FastEmbedEmbedder(name)
    make, rest = require_plugin("embedders", spec, CHOICES)
    made: Embedder = make(rest, base_url, api_key)
    return made
