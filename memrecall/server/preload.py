"""What the first requests would otherwise wait for: libraries, rules, weights and the embedder."""

import asyncio
import gc
import logging
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from memrecall.embedding import Embedder
from memrecall.embedding.embedders import HashEmbedder, ThreadedEmbedder
from memrecall.errors import MemrecallError
from memrecall.memory import AsyncMemory, Library, recall
from memrecall.scope import Scope
from memrecall.server.http.app import build_routes
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.text.keywords import extract_keywords
from memrecall.types import NewMessage, Role

log = logging.getLogger("memrecall.server")

_USER = "sample"
_SAMPLE = {
    "My sister lives in Lisbon": "Where does my sister live?",
    "我姐姐住在里斯本": "姐姐住在哪里？",
}


async def preload(embedder: Embedder | None) -> None:
    """Load what a recall needs, by recalls from a small database of its own."""
    is_local = isinstance(embedder, ThreadedEmbedder)  # Clients of servers stay in their loop.
    await asyncio.to_thread(_load, embedder if is_local else HashEmbedder())
    gc.freeze()  # What exists now stays: the collector need not look at it again and again.


def _load(embedder: Embedder) -> None:
    import_module("memrecall.model.client")
    extract_keywords("tea 茶")  # reads the Chinese dictionaries
    build_routes()
    try:
        with TemporaryDirectory(prefix="memrecall-") as folder:
            asyncio.run(_recall_sample(embedder, Path(folder)))
    except (OSError, MemrecallError) as error:  # The first recall takes longer then.
        log.warning("not preloaded", extra={"fields": {"error": type(error).__name__}})


async def _recall_sample(embedder: Embedder, folder: Path) -> None:
    settings = Settings(db=str(folder / "sample.db"), cache_dir=str(folder))
    async with await Store.open(settings.db, durability="normal") as store:
        library = Library(store, embedder, settings)
        said = [NewMessage(role=Role.USER, content=text) for text in _SAMPLE]
        await library.add_messages(Scope(_USER), said)
        await library.vectors.settle()
        for question in _SAMPLE.values():
            await recall(question, user_id=_USER, library=library)
            await AsyncMemory(library=library, user_id=_USER).search(question)
        await library.vectors.close(0.0)
