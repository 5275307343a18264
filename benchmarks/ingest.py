"""The speed of writing messages, and their size on disk."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.corpus import Corpus, Turn
from benchmarks.databases import new_place, opened, write
from benchmarks.report import Report, say
from memrecall.embedding import Embedder

SECTION = "ingest into SQLite"


async def measure_ingest(
    report: Report, corpus: Corpus, embedder: Embedder, plain: int, embedded: int
) -> None:
    """Measure rates with and without embedding, and of the embedder alone."""
    turns = list(corpus.turns(plain))
    characters = sum(len(turn.text) for turn in turns) / plain
    report.add(SECTION, "characters a message", characters, "")
    size = sum(len(turn.text.encode()) for turn in turns) / plain
    report.add(SECTION, "bytes a message, UTF-8", size, "")
    await _measure(report, "without embedding", turns, None)
    await _measure(report, "40 characters, without embedding", _short(corpus, plain), None)
    await _measure_embedding(report, corpus, embedder, embedded)


async def _measure(
    report: Report, name: str, turns: Sequence[Turn], embedder: Embedder | None
) -> float:
    say(f"ingest of {len(turns):,} messages {name}")
    with new_place() as place:
        async with opened(place, embedder) as library:
            spent = await write(library, "bench", turns)
        report.add(SECTION, name, len(turns) / spent.wall, "messages/s")
        report.add(SECTION, f"{name}, a CPU second", len(turns) / spent.cpu, "messages")
        report.add(SECTION, f"{name}: disk", place.disk_bytes() / len(turns), "bytes/message")
    return len(turns) / spent.wall


async def _measure_embedding(
    report: Report, corpus: Corpus, embedder: Embedder, count: int
) -> None:
    turns = list(corpus.turns(count))
    texts = [turn.text for turn in turns]
    await embedder.embed(texts[:1])  # its files are read now
    # Measured before and after, because of other load on the machine.
    before = await _embed_alone(embedder, texts)
    with_embedding = await _measure(report, "with embedding", turns, embedder)
    alone = 2 * count / (before + await _embed_alone(embedder, texts))
    report.add(SECTION, "the embedder alone, same texts", alone, "messages/s")
    report.add(SECTION, "with embedding / embedder alone", with_embedding / alone, "")


async def _embed_alone(embedder: Embedder, texts: Sequence[str]) -> float:
    begun = time.perf_counter()
    await embedder.embed(texts)
    return time.perf_counter() - begun


def _short(corpus: Corpus, count: int) -> list[Turn]:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    texts = corpus.short_texts(count)
    return [
        Turn(f"s{number // 20}", "Ann", text, start + timedelta(minutes=number))
        for number, text in enumerate(texts)
    ]
