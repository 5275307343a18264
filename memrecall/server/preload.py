"""What the first requests would otherwise wait for: libraries, rules, weights and the embedder."""

import asyncio
import gc
from contextlib import suppress
from importlib import import_module
from tempfile import TemporaryDirectory

from memrecall.embedding import Embedder
from memrecall.embedding.base import ThreadedEmbedder
from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import MemrecallError
from memrecall.memory import Library, recall
from memrecall.scope import Scope
from memrecall.server.http.app import build_routes
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.text.keywords import extract_keywords
from memrecall.types import NewMessage, Role

_USER, _SAMPLE = "sample", ("My sister lives in Lisbon", "我姐姐住在里斯本")


async def preload(embedder: Embedder | None) -> None:
    """Load what a recall needs, by recalls from a small database of its own."""
    if not isinstance(embedder, ThreadedEmbedder):  # The client of a server stays in its loop.
        embedder = HashEmbedder()
    await asyncio.to_thread(_load, embedder)
    gc.freeze()  # What exists now stays: the collector need not look at it again and again.


def _load(embedder: Embedder) -> None:
    import_module("memrecall.model.client")
    extract_keywords("tea 茶")  # reads the Chinese dictionaries
    build_routes()
    # Without a temporary folder or an embedder, the first recall takes longer.
    with suppress(OSError, MemrecallError), TemporaryDirectory(prefix="memrecall-") as folder:
        asyncio.run(_recall_sample(embedder, folder))


async def _recall_sample(embedder: Embedder, folder: str) -> None:
    settings = Settings(db=f"{folder}/sample.db", cache_dir=folder)
    async with await Store.open(settings.db, durability="normal") as store:
        library = Library(store, embedder, settings)
        said = [NewMessage(role=Role.USER, content=text) for text in _SAMPLE]
        await library.add_messages(Scope(_USER), said)
        await library.vectors.settle()
        for text in _SAMPLE:
            await recall(f"{text}?", user_id=_USER, library=library)
        await library.vectors.close(0.0)
