"""Creation of embedders from settings."""

import pytest

from memrecall.embedding import make_embedder
from memrecall.embedding.embedders import CHOICES
from memrecall.embedding.remote import RemoteEmbedder
from memrecall.errors import InvalidArgument

from ..cases import check_each


@pytest.mark.parametrize(
    ("spec", "kind", "model"),
    [
        ("local", "LocalEmbedder", "usem3-512-p1"),
        ("hash", "HashEmbedder", "hash-64"),
        ("openai:nomic-embed-text:latest", "RemoteEmbedder", "openai:nomic-embed-text:latest"),
        ("sentence-transformers:a/b", "SentenceTransformersEmbedder", "sentence-transformers:a/b"),
        ("fastembed:BAAI/bge", "FastEmbedEmbedder", "fastembed:BAAI/bge"),
    ],
)
async def test_make_embedder_for_each_choice(spec: str, kind: str, model: str) -> None:
    embedder = make_embedder(spec)
    assert embedder is not None
    assert (type(embedder).__name__, embedder.model) == (kind, model)
    await embedder.close()


def test_make_embedder_none() -> None:
    assert make_embedder("none") is None


def test_default_embedder_is_local() -> None:
    assert type(make_embedder()).__name__ == "LocalEmbedder"


def test_openai_base_url_defaults_and_can_be_set() -> None:
    assert "https://api.openai.com/v1/embeddings" in repr(make_embedder("openai:m"))
    other = make_embedder("openai:m", base_url="http://127.0.0.1:1/v1", api_key="sk-secret")
    assert isinstance(other, RemoteEmbedder)
    assert "http://127.0.0.1:1/v1/embeddings" in repr(other)
    assert "secret" not in repr(other)


def test_unknown_embedder_error_lists_choices() -> None:
    def refuse(spec: str) -> None:
        with pytest.raises(InvalidArgument) as error_info:
            make_embedder(spec)
        assert repr(spec) in error_info.value.message
        assert all(choice in error_info.value.hint for choice in CHOICES)

    without = ["", "locals", "Local", "openai"]
    check_each([*without, "local:", "local:x", "none:", "openai:", "fastembed:"], refuse)
