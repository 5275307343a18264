"""Other memory stores with the same embedder on the same questions.

    pip install -e '.[peers]'
    python benchmarks/peers.py                          the questions of fixtures/eval
    python benchmarks/peers.py --data DIR… --json FILE  folders with corpus.jsonl and queries.jsonl
    python benchmarks/peers.py --speakers               the stores get "Ann: text"

Compares memrecall's search with mem0, Chroma and LangGraph's stores: each gets the corpus, the
questions and memrecall's local embedder, in one run. Nothing leaves the machine.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from math import inf
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.databases import Place, in_batches, opened  # noqa: E402
from benchmarks.report import Stopwatch, Time, number, percentile, say  # noqa: E402
from memrecall.embedding import Embedder, Vectors, make_embedder  # noqa: E402
from memrecall.evaluation.corpus import Corpus, check_labels, import_corpus, read_corpus  # noqa: E402
from memrecall.evaluation.questions import Question, read_questions  # noqa: E402
from memrecall.importers.jsonl import read_entry  # noqa: E402
from memrecall.scope import Scope  # noqa: E402
from memrecall.search import SearchRequest  # noqa: E402
from memrecall.search.request import Mode  # noqa: E402

Json = dict[str, Any]
Item = TypeVar("Item")

_BEST = 10
WARM_UP = "warm up 热身"
FIGURES = {
    "recall": "recall@10",
    "p50_ms": "search p50, ms",
    "adds_per_second": "adds a second",
    "adds_per_cpu_second": "a CPU second",
}
FILTERED = "a filter of the search"
# Read by the libraries when they are imported.
SWITCHES = {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "MEM0_TELEMETRY": "False",
    "OTEL_SDK_DISABLED": "true",
    "POSTHOG_DISABLED": "1",
}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Row:
    """A message or a memory in the format of the stores."""

    user: str
    key: str
    text: str
    moment: float  # the time of a message, or the start of a memory's validity, in seconds

    def metadata(self) -> Json:
        """Return the metadata stored with the text."""
        return {"owner": self.user, "key": self.key, "moment": self.moment}


class Bridge:
    """The embedder for synchronous libraries; its event loop runs in a thread."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Item]) -> Item:
        """Run a coroutine and wait for it, from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text."""
        return self.run(self.embedder.embed(texts))

    def lists(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors as plain lists."""
        rows: list[list[float]] = self.vectors(texts).tolist()
        return rows


@dataclass(frozen=True, slots=True)
class Task:
    """The input of a system; its folder is empty and not shared."""

    folder: Path
    corpus: Corpus
    rows: Sequence[Row]
    bridge: Bridge


@dataclass(frozen=True, slots=True)
class System:
    """An opened store: how to fill it, query it, and exclude later rows."""

    version: str
    add: Callable[[], object]
    search: Callable[[Question], Sequence[str] | None]  # None: the system cannot search
    cutoff: str = FILTERED
    close: Callable[[], object] = tuple  # nothing to close


def open_memrecall(task: Task, mode: Mode) -> System:
    """Open a `Library` on SQLite, filled and queried as `memrecall eval run` does."""
    place = Place(str(task.folder / "bench.db"), task.folder)
    manager = opened(place, task.bridge.embedder)
    library = task.bridge.run(manager.__aenter__())
    zones: dict[str, str] = {}

    async def search(question: Question) -> list[str]:
        user, zone = question.user_id, question.time_zone or "UTC"
        if zones.get(user) != zone:
            await library.store.owners.set_time_zone(user, zone)
            zones[user] = zone
        horizon = question.horizon
        request = SearchRequest(
            question.query,
            mode=mode,
            limit=_BEST,
            until=horizon and horizon + timedelta(microseconds=1),
            now=horizon or task.corpus.now(user),
        )
        page = await library.search(Scope(user, session_id=question.session_id), request)
        return [hit.key for hit in page.results]

    run = task.bridge.run
    return System(
        version("memrecall-agent"),
        lambda: run(import_corpus(library, task.corpus, lambda count: None)),
        lambda question: run(search(question)),
        close=lambda: run(manager.__aexit__(None, None, None)),
    )


def open_mem0(task: Task) -> System:
    """Open mem0 with Qdrant in a folder, without inference and with memrecall's embedder.

    Its keyword search needs fastembed and a model to download; without it, search is semantic only.
    """
    from mem0 import Memory

    unreachable = {"api_key": "none", "openai_base_url": "http://127.0.0.1:9"}
    store = {"path": str(task.folder / "qdrant"), "embedding_model_dims": _dimensions(task)}
    memory: Any = Memory.from_config(
        {
            "llm": {"provider": "openai", "config": unreachable},
            "embedder": {"provider": "openai", "config": unreachable},
            "vector_store": {"provider": "qdrant", "config": {**store, "on_disk": True}},
            "history_db_path": str(task.folder / "history.db"),
        }
    )
    memory.embedding_model = _Mem0Embedder(task.bridge)

    def add() -> None:
        for row in task.rows:  # a call takes one metadata for all its messages
            memory.add(row.text, user_id=row.user, metadata=row.metadata(), infer=False)

    def search(question: Question) -> list[str]:
        filters: Json = {"user_id": question.user_id, **_not_later(question, "lte")}
        page = memory.search(question.query, top_k=_BEST, filters=filters, threshold=0.0)
        return [result["metadata"]["key"] for result in page["results"]]

    # None if its model or fastembed is missing.
    words = memory.vector_store.keyword_search("warm up", top_k=1)
    half = "semantic half only" if words is None else "both halves"
    return System(f"{version('mem0ai')}, {half}", add, search, close=memory.close)


class _Mem0Embedder:
    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._bridge.lists([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str = "add") -> list[list[float]]:
        return self._bridge.lists(texts)


def open_chroma(task: Task) -> System:
    """Open Chroma in a folder, with cosine distance and its default index."""
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    client: Any = chromadb.PersistentClient(str(task.folder), settings)
    collection = client.create_collection(
        "rows", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )

    def add() -> None:
        for rows in in_batches(task.rows):
            texts = [row.text for row in rows]
            collection.add(
                ids=[f"{row.user} {row.key}" for row in rows],
                embeddings=task.bridge.vectors(texts),
                documents=texts,
                metadatas=[row.metadata() for row in rows],
            )

    def search(question: Question) -> list[str]:
        by_owner: Json = {"owner": question.user_id}
        later = _not_later(question, "$lte")
        page = collection.query(
            query_embeddings=task.bridge.vectors([question.query]),
            n_results=_BEST,
            where={"$and": [by_owner, later]} if later else by_owner,
        )
        return [metadata["key"] for metadata in page["metadatas"][0]]

    return System(version("chromadb"), add, search)


def open_langgraph_memory(task: Task) -> System:
    """Open LangGraph's in-memory store."""
    from langgraph.store.memory import InMemoryStore

    return _langgraph(task, InMemoryStore(index=_langgraph_index(task)), "langgraph-checkpoint")


def open_langgraph_sqlite(task: Task) -> System:
    """Open LangGraph's SQLite store."""
    from langgraph.store.sqlite import SqliteStore

    manager: Any = SqliteStore.from_conn_string(
        str(task.folder / "store.db"), index=_langgraph_index(task)
    )
    store = manager.__enter__()
    store.setup()
    close = partial(manager.__exit__, None, None, None)
    return _langgraph(task, store, "langgraph-checkpoint-sqlite", close)


def _langgraph_index(task: Task) -> Any:
    return {"dims": _dimensions(task), "embed": task.bridge.lists, "fields": ["text"]}


def _langgraph(task: Task, store: Any, package: str, close: Callable[[], object] = tuple) -> System:
    from langgraph.store.base import PutOp

    def put(row: Row) -> Any:
        return PutOp((row.user,), row.key, {"text": row.text, **row.metadata()})

    def add() -> None:
        for rows in in_batches(task.rows):
            # InMemoryStore rejects a batch with a repeated text: these are stored one by one.
            first_rows = {row.text: row for row in rows}
            store.batch([put(row) for row in first_rows.values()])
            for row in rows:
                if first_rows[row.text] is not row:
                    store.batch([put(row)])

    def search(question: Question) -> list[str]:
        later = _not_later(question, "$lte") or None
        items = store.search((question.user_id,), query=question.query, limit=_BEST, filter=later)
        return [item.key for item in items]

    return System(version(package), add, search, close=close)


def open_embedder(task: Task) -> System:
    """Open the embedder without a store: the cost that every system has."""

    def add() -> None:
        for rows in in_batches(task.rows):
            task.bridge.vectors([row.text for row in rows])

    def search(question: Question) -> None:
        task.bridge.vectors([question.query])

    return System(task.bridge.embedder.model, add, search, cutoff="")


def _dimensions(task: Task) -> int:
    return task.bridge.embedder.dimensions


def _not_later(question: Question, operator: str) -> Json:
    """Return a filter on the time of a row, in the store's syntax; empty without `as_of`."""
    horizon = question.horizon
    return {} if horizon is None else {"moment": {operator: horizon.timestamp()}}


SYSTEMS: dict[str, Callable[[Task], System]] = {
    "memrecall, hybrid": partial(open_memrecall, mode="hybrid"),  # the others are compared with it
    "memrecall, semantic": partial(open_memrecall, mode="semantic"),
    "mem0, Qdrant in a folder": open_mem0,
    "Chroma, in a folder": open_chroma,
    "LangGraph, InMemoryStore": open_langgraph_memory,
    "LangGraph, SqliteStore": open_langgraph_sqlite,
    "the embedder alone": open_embedder,
}


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one system, or why it could not be measured."""

    system: str
    version: str = ""
    recall: float | None = None  # evidence among the first ten; None where nothing is found
    p50_ms: float | None = None
    adds_per_second: float | None = None
    adds_per_cpu_second: float | None = None  # other load affects it less
    cutoff: str = ""
    failure: str = ""


class Trial:
    """One system on one corpus. An error ends the trial and is reported, not raised."""

    def __init__(self, name: str, task: Task) -> None:
        self._name = name
        self._task = task
        self._moments = {(row.user, row.key): row.moment for row in task.rows}
        self._system: System | None = None
        self._filling = Time(inf, inf)
        self._times: list[float] = []
        self._shares: list[float] = []
        self._failure = ""

    def fill(self) -> None:
        """Open the system and store all rows."""
        with self._telling():
            say(self._name)
            self._system = SYSTEMS[self._name](self._task)
            watch = Stopwatch()
            self._system.add()
            self._filling = watch.read()

    def ask(self, question: Question, *, counts: bool = True) -> None:
        """Ask one question, optionally as a warm-up."""
        if self._system is None or self._failure:
            return
        with self._telling():
            watch = Stopwatch()
            keys = self._system.search(question)
            spent = watch.read()
            if counts:
                self._times.append(spent.wall)
                self._judge(question, keys)

    def _judge(self, question: Question, keys: Sequence[str] | None) -> None:
        latest = inf if question.horizon is None else question.horizon.timestamp()
        for key in keys or ():
            if self._moments[question.user_id, key] > latest:
                raise ValueError(f"{question.query_id} got {key}, which is later than its as_of")
        if keys is not None and question.evidence:
            retrieved = {*question.evidence} & {*keys[:_BEST]}
            self._shares.append(len(retrieved) / len(question.evidence))

    def end(self) -> Result:
        """Close the system; return its result."""
        if self._system is not None:
            with self._telling():
                self._system.close()
        if self._system is None or self._failure:
            return Result(self._name, failure=self._failure)
        rows = len(self._task.rows)
        return Result(
            self._name,
            self._system.version,
            fmean(self._shares) if self._shares else None,
            percentile(self._times, 50) * 1_000,
            rows / self._filling.wall,
            rows / self._filling.cpu,
            self._system.cutoff,
        )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            self._failure = f"not installed: {error}"
        except (
            Exception
        ) as error:  # third-party code may raise anything; continue with the next system
            self._failure = f"failed: {type(error).__name__}: {error}"


def measure_folder(data: Path, bridge: Bridge, parent: Path, *, speakers: bool) -> list[Result]:
    """Run all systems on one corpus and its questions."""
    corpus = read_corpus(data / "corpus.jsonl", read_entry)
    question_set = read_questions(data / "queries.jsonl")
    check_labels(question_set, corpus)
    rows = _rows(corpus, speakers)
    say(f"{data.name}: {len(rows):,} rows, {len(question_set.questions):,} questions")
    trials: list[Trial] = []
    for name in SYSTEMS:
        folder = Path(tempfile.mkdtemp(dir=parent))
        trials.append(Trial(name, Task(folder, corpus, rows, bridge)))
    for trial in trials:
        trial.fill()
        trial.ask(question_set.questions[0].model_copy(update={"query": WARM_UP}), counts=False)
    say("questions")
    # All systems answer each question in turn, so that other load affects all of them.
    for at, question in enumerate(question_set.questions):
        first = at % len(trials)
        for trial in trials[first:] + trials[:first]:
            trial.ask(question)
    return [trial.end() for trial in trials]


def _rows(corpus: Corpus, speakers: bool) -> list[Row]:
    """Return the texts that memrecall embeds, optionally preceded by the speaker."""
    rows: list[Row] = []
    now = datetime.now(UTC).timestamp()
    for _, entry in corpus.messages:
        message = entry.message
        text = message.content
        if speakers and message.speaker:
            text = f"{message.speaker}: {text}"
        time = message.ts.timestamp() if message.ts else now
        rows.append(Row(entry.scope.user_id, str(message.message_id), text, time))
    for _, remembered in corpus.memories:
        memory = remembered.memory
        text = f"{memory.summary}\n{memory.content}".strip()
        valid_from = memory.valid_from.timestamp() if memory.valid_from else now
        rows.append(Row(remembered.scope.user_id, str(memory.memory_key), text, valid_from))
    return rows


def ratios(result: Result, reference: Result) -> dict[str, float]:
    """Return each figure as a multiple of memrecall's."""
    pairs = {name: (getattr(result, name), getattr(reference, name)) for name in FIGURES}
    return {
        name: value / base for name, (value, base) in pairs.items() if value is not None and base
    }


def print_results(data: Path, results: Sequence[Result]) -> None:
    """Print one table per folder, with multiples of memrecall's figures in brackets."""
    table = Table(title=f"{data.name} (in brackets: times memrecall's)", title_justify="left")
    for heading in ("system", "version", *FIGURES.values(), "what is later than as_of"):
        table.add_column(heading)
    for result in results:
        cells = [_cell(getattr(result, n), ratios(result, results[0]).get(n)) for n in FIGURES]
        table.add_row(result.system, result.version, *cells, result.failure or result.cutoff)
    # As wide as it needs to be, also where the output is a file.
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def _cell(value: float | None, ratio: float | None) -> str:
    if value is None:
        return "—"
    return number(value) + ("" if ratio is None else f" ({ratio:.2f})")


def forbid_network(refused_hosts: list[str]) -> None:
    """Refuse and record every connection to another machine, for the rest of the process."""

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1]
            host = address[0] if isinstance(address, tuple) else None  # a socket that is a file
        elif event == "socket.getaddrinfo":
            host = arguments[0]
        else:
            return
        if host is not None and host not in _LOOPBACK:
            refused_hosts.append(str(host))
            raise PermissionError(f"{host} was to be reached, but nothing may leave this machine")

    sys.addaudithook(watch)


def _as_data(results: Sequence[Result]) -> list[Json]:
    reference = results[0]
    return [{**asdict(result), "times_memrecall": ratios(result, reference)} for result in results]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = [REPOSITORY / "fixtures" / "eval"]
    parser.add_argument("--data", type=Path, nargs="+", metavar="DIR", default=default)
    parser.add_argument(
        "--speakers", action="store_true", help="the speaker's name before each text, for peers"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables, write the file."""
    options = _read_options()
    refused_hosts: list[str] = []
    forbid_network(refused_hosts)
    embedder = make_embedder("local")
    assert embedder is not None
    bridge = Bridge(embedder)
    bridge.vectors([WARM_UP])  # its files are read now
    measured: dict[str, list[Result]] = {}
    # Chroma keeps its files open and may create some while the folder is removed.
    with tempfile.TemporaryDirectory(
        prefix="memrecall-benchmark-", ignore_cleanup_errors=True
    ) as temporary:
        os.environ.update(SWITCHES, MEM0_DIR=temporary)
        for data in options.data:
            results = measure_folder(data, bridge, Path(temporary), speakers=options.speakers)
            measured[data.name] = results
            print_results(data, results)
    print(f"refused connections: {', '.join(refused_hosts) or 'none'}")
    if options.json is not None:
        content = {
            "speakers": options.speakers,
            "refused": refused_hosts,
            "results": {name: _as_data(results) for name, results in measured.items()},
        }
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
