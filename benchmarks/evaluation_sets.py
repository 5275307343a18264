"""Evaluation sets in databases of a work folder, and the searches of their questions.

A set is a folder with corpus.jsonl and queries.jsonl (docs/evaluation.md). Sets whose folders begin
with the same word come from one source: lifebench_zh and lifebench_en.
"""

import argparse
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from benchmarks.report import say
from memrecall.evaluation.datasets import (
    Corpus,
    Question,
    check_labels,
    import_corpus,
    read_corpus,
    read_questions,
)
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import EngineRequest
from memrecall.search.engine import Search
from memrecall.settings import Settings
from memrecall.text.language import language_of
from memrecall.types import Language

Fit = TypeVar("Fit")

WORK = Path(tempfile.gettempdir()) / "memrecall-fit-ranking"
_AUTHOR = re.compile("(?:en|zh)[A-Z](?:_cut)?")
_TOLD_EVERY = 200  # questions


def source_of(name: str) -> str:
    """Return the source of a set by its folder's name; all authors are one source."""
    if _AUTHOR.fullmatch(name):
        return "authored"
    return name.split("_")[0]


def map_path(work: Path, left_out: str = "") -> Path:
    """Return the file of a query map in a folder; `left_out` is the source it never saw."""
    return work / (f"query_map-without-{left_out}.npy" if left_out else "query_map.npy")


def add_folder_options(parser: argparse.ArgumentParser, **helps: str) -> None:
    """Add options that take folders of sets; `data` is required."""
    for name, text in helps.items():
        parser.add_argument(
            f"--{name}",
            type=lambda path: Path(path).resolve(),  # "." has a name, too
            nargs="+",
            metavar="FOLDER",
            required=name == "data",
            default=[],
            help=text,
        )


def check_names(parser: argparse.ArgumentParser, folders: Sequence[Path]) -> None:
    """Reject folders of the same name."""
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        parser.error(f"tables name sets by their folders, which must differ: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The corpus and the questions of one folder."""

    name: str
    corpus: Corpus
    questions: tuple[Question, ...]

    @property
    def source(self) -> str:
        """The source that its conversations come from."""
        return source_of(self.name)

    @property
    def language(self) -> Language:
        """The language of most questions, English on a tie."""
        return max(("en", "zh"), key=[language_of(q.query) for q in self.questions].count)


def read_evaluation_set(folder: Path, excluded: Collection[str] = ()) -> EvaluationSet:
    """Read a folder, without questions of the excluded categories."""
    question_set = read_questions(folder / "queries.jsonl")
    corpus = read_corpus(folder / "corpus.jsonl", read_entry)
    check_labels(question_set, corpus)
    questions = [
        question for question in question_set.questions if question.category not in excluded
    ]
    return EvaluationSet(folder.name, corpus, tuple(questions))


@asynccontextmanager
async def open_library(
    evaluation_set: EvaluationSet, work: Path, embedder: str = "local"
) -> AsyncIterator[Library]:
    """Open a database with the set's corpus; a complete one in `work` is reused."""
    name, corpus = evaluation_set.name, evaluation_set.corpus
    database = work / f"{name}-{corpus.sha256[:12]}-{embedder.replace('/', '_')}.db"
    settings = Settings(db=str(database), embedder=embedder, durability="normal", snapshots=False)
    async with await Library.open(settings) as library:
        await _import(library, corpus, name)
        yield library


async def _import(library: Library, corpus: Corpus, name: str) -> None:
    stats = await library.stats()
    stored_count = int(stats["messages"]) + int(stats["memories"])
    if stored_count == corpus.size and not stats.get("not_embedded"):
        say(f"{name}: {stored_count:,} lines are already stored")
        return
    remaining = corpus.size

    def advance(lines: int) -> None:
        nonlocal remaining
        remaining -= lines
        say(f"{name}: {remaining:,} lines to import")

    await import_corpus(library, corpus, advance)


async def begin_search(library: Library, corpus: Corpus, question: Question) -> Search:
    """Return the hybrid search with which an evaluation asks a question."""
    await library.store.owners.set_time_zone(question.user_id, question.time_zone or "UTC")
    horizon = question.horizon
    until = horizon and horizon + timedelta(microseconds=1)
    request = EngineRequest(
        question.query, until=until, now=horizon or corpus.now(question.user_id)
    )
    feed = library.store.feed(question.user_id)
    user = await feed.version()
    assert user is not None, f"{question.user_id} was imported"
    scope = Scope(question.user_id, session_id=question.session_id)
    return library.engine.begin(scope, request, feed, user)


def tell_progress(name: str, done: int, total: int) -> None:
    """Print now and then how many questions are done."""
    if done % _TOLD_EVERY == 0 or done == total:
        say(f"{name}: {done} of {total} questions")


def fit_without(names: Sequence[str], fit: Callable[[Sequence[str]], Fit]) -> dict[str, Fit]:
    """Return for each source of the named sets the fit to the sets of all other sources."""
    sources = dict.fromkeys(map(source_of, names))
    return {
        source: fit([name for name in names if source_of(name) != source]) for source in sources
    }
