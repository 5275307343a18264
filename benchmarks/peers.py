"""Other memory stores with the same embedder on the same questions.

    pip install -e '.[peers]'
    python benchmarks/peers.py                          the questions of fixtures/eval
    python benchmarks/peers.py --data DIR… --json FILE  folders with corpus.jsonl and queries.jsonl
    python benchmarks/peers.py --speakers               the stores get "Ann: text"

Compares memrecall's search with mem0, MemPalace and plain cosines: each gets the corpus, the
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
from functools import cached_property, partial
from importlib.metadata import version
from math import inf
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: E402

from benchmarks.databases import Place, in_batches, opened  # noqa: E402
from benchmarks.evaluation_sets import read_evaluation_set  # noqa: E402
from benchmarks.report import number, say  # noqa: E402
from memrecall.embedding import Embedder, Vectors, make_embedder  # noqa: E402
from memrecall.evaluation.datasets import (  # noqa: E402
    Corpus,
    Question,
    import_corpus,
)
from memrecall.scope import Scope  # noqa: E402
from memrecall.search import SearchRequest  # noqa: E402

Json = dict[str, Any]
Item = TypeVar("Item")
EmbedLists = Callable[[Sequence[str]], list[list[float]]]

_FEW, _BEST = 5, 10
WARM_UP = "warm up 热身"
FIGURES = {
    "recall_at_5": "recall@5",
    "recall_at_10": "recall@10",
    "megabytes": "MB on disk for 1,000",
}
_DOES_NOT_SHOW = (
    "what mem0 finds among facts that a model extracted, and what either peer finds with the"
    " embedder that it recommends: all get the vectors for which memrecall's ranking was developed"
)
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
        self._rows: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Item]) -> Item:
        """Run a coroutine and wait for it, from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, which is embedded once for all systems."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        self._rows.update(zip(new, self.run(self.embedder.embed(new)), strict=True))
        return np.stack([self._rows[text] for text in texts])

    def lists(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors as plain lists."""
        rows: list[list[float]] = self.vectors(texts).tolist()
        return rows

    @cached_property
    def url(self) -> str:
        """The address of a server on loopback that embeds, with OpenAI's interface."""
        lists = self.lists

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
                texts = [texts] if isinstance(texts, str) else texts
                items = [{"index": n, "embedding": row} for n, row in enumerate(lists(texts))]
                content = json.dumps({"data": items}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_arguments: object) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"


@dataclass(frozen=True, slots=True)
class Task:
    """The input of a system; its folder is empty and not shared."""

    folder: Path
    corpus: Corpus
    rows: Sequence[Row]
    bridge: Bridge


@dataclass(frozen=True, slots=True)
class System:
    """An opened store, and how to fill and query it."""

    version: str
    add: Callable[[], object]
    search: Callable[[Question], Sequence[str]]
    close: Callable[[], object] = tuple  # nothing to close


def open_memrecall(task: Task) -> System:
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


def make_mem0(folder: Path, dimensions: int, embed: EmbedLists) -> Any:
    """Return mem0 with Qdrant in a folder and another embedder; its model is unreachable."""
    from mem0 import Memory

    unreachable = {"api_key": "none", "openai_base_url": "http://127.0.0.1:9"}
    store = {"path": str(folder / "qdrant"), "embedding_model_dims": dimensions}
    memory: Any = Memory.from_config(
        {
            "llm": {"provider": "openai", "config": unreachable},
            "embedder": {"provider": "openai", "config": unreachable},
            "vector_store": {"provider": "qdrant", "config": {**store, "on_disk": True}},
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model = _Mem0Embedder(embed)
    return memory


def open_mem0(task: Task) -> System:
    """Open mem0 without inference.

    Its keyword search needs fastembed and a model to download; without it, search is semantic only.
    """
    memory = make_mem0(task.folder, _dimensions(task), task.bridge.lists)

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
    def __init__(self, embed: EmbedLists) -> None:
        self._embed = embed

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._embed([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str = "add") -> list[list[float]]:
        return self._embed(texts)


def open_mempalace(task: Task, strategy: str) -> System:
    """Open MemPalace in a folder: a drawer for each message, a wing for each user.

    It gets memrecall's embedder from a server on loopback. It orders the candidates of the vectors
    by words too; with the strategy "union", words add candidates.
    """
    os.environ |= {
        "MEMPALACE_CONFIG_DIR": str(task.folder.parent),
        "MEMPALACE_EMBEDDING_MODEL": "openai-compat",
        "MEMPALACE_EMBEDDING_API_URL": task.bridge.url,
        "MEMPALACE_EMBEDDING_API_MODEL": "local",
    }
    from mempalace.palace import get_collection
    from mempalace.searcher import search_memories

    palace = str(task.folder / "palace")

    def add() -> None:
        drawers = get_collection(palace)
        for rows in in_batches(task.rows, 100):
            drawers.upsert(
                ids=[f"{row.user} {row.key}" for row in rows],
                documents=[row.text for row in rows],
                metadatas=[_drawer(row) for row in rows],
            )

    def search(question: Question) -> list[str]:
        horizon = question.horizon
        page = search_memories(
            question.query,
            palace,
            wing=question.user_id,
            before=horizon and _naive(horizon + timedelta(microseconds=1)),
            n_results=_BEST,
            candidate_strategy=strategy,
        )
        return [hit["drawer_id"].split(" ", 1)[1] for hit in page["results"]]

    return System(version("mempalace"), add, search)


def _drawer(row: Row) -> Json:
    filed_at = _naive(datetime.fromtimestamp(row.moment, UTC))
    return {"wing": row.user, "room": "chat", "source_file": row.key, "filed_at": filed_at}


def _naive(moment: datetime) -> str:  # as MemPalace compares times
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()


def open_vectors(task: Task) -> System:
    """Open a plain vector store: one matrix per user in a file, all cosines for each question."""
    matrices: dict[str, tuple[list[Row], Vectors]] = {}

    def add() -> None:
        for user in dict.fromkeys(row.user for row in task.rows):
            rows = [row for row in task.rows if row.user == user]
            matrix = task.bridge.vectors([row.text for row in rows])
            np.save(task.folder / f"{len(matrices)}.npy", matrix)
            (task.folder / f"{len(matrices)}.json").write_text(
                json.dumps([asdict(row) for row in rows], ensure_ascii=False), "utf-8"
            )
            matrices[user] = rows, matrix / np.linalg.norm(matrix, axis=1, keepdims=True)

    def search(question: Question) -> list[str]:
        rows, matrix = matrices[question.user_id]
        scores = matrix @ task.bridge.vectors([question.query])[0]
        latest = inf if question.horizon is None else question.horizon.timestamp()
        order = (rows[at] for at in np.argsort(-scores))
        return [row.key for row in order if row.moment <= latest][:_BEST]

    return System(f"numpy {np.__version__}", add, search)


def _dimensions(task: Task) -> int:
    return task.bridge.embedder.dimensions


def _not_later(question: Question, operator: str) -> Json:
    """Return a filter on the time of a row, in the store's syntax; empty without `as_of`."""
    horizon = question.horizon
    return {} if horizon is None else {"moment": {operator: horizon.timestamp()}}


SYSTEMS: dict[str, Callable[[Task], System]] = {
    "memrecall": open_memrecall,
    "mem0, Qdrant in a folder": open_mem0,
    "MemPalace": partial(open_mempalace, strategy="vector"),
    "MemPalace, union": partial(open_mempalace, strategy="union"),
    "vectors in a file, cosine": open_vectors,
}


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one system, or why it could not be measured."""

    system: str
    version: str = ""
    recall_at_5: float | None = None  # share of the evidence among the first five
    recall_at_10: float | None = None
    megabytes: float | None = None  # of all files for 1,000 rows
    failure: str = ""


class Trial:
    """One system on one corpus. An error ends the trial and is reported, not raised."""

    def __init__(self, name: str, task: Task) -> None:
        self._name = name
        self._task = task
        self._moments = {(row.user, row.key): row.moment for row in task.rows}
        self._system: System | None = None
        self._shares: dict[int, list[float]] = {_FEW: [], _BEST: []}
        self._failure = ""

    def fill(self) -> None:
        """Open the system and store all rows."""
        with self._telling():
            say(self._name)
            self._system = SYSTEMS[self._name](self._task)
            self._system.add()

    def ask(self, question: Question) -> None:
        """Ask one question."""
        if self._system is None or self._failure:
            return
        with self._telling():
            self._judge(question, self._system.search(question))

    def _judge(self, question: Question, keys: Sequence[str]) -> None:
        latest = inf if question.horizon is None else question.horizon.timestamp()
        for key in keys:
            if self._moments[question.user_id, key] > latest:
                raise ValueError(f"{question.query_id} got {key}, which is later than its as_of")
        if question.evidence:
            for cut, shares in self._shares.items():
                retrieved = {*question.evidence} & {*keys[:cut]}
                shares.append(len(retrieved) / len(question.evidence))

    def end(self) -> Result:
        """Close the system; return its result."""
        if self._system is not None:
            with self._telling():
                self._system.close()
        if self._system is None or self._failure:
            return Result(self._name, failure=self._failure)
        rows = len(self._task.rows)
        files = [file for file in self._task.folder.rglob("*") if file.is_file()]
        few, many = (fmean(shares) if shares else None for shares in self._shares.values())
        megabytes = sum(file.stat().st_size for file in files) / rows / 1_000
        return Result(self._name, self._system.version, few, many, megabytes)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            self._failure = f"not installed: {error}"
        except Exception as error:  # third-party code may raise anything; others may work
            self._failure = f"failed: {type(error).__name__}: {error}"


def measure_folder(data: Path, bridge: Bridge, parent: Path, *, speakers: bool) -> list[Result]:
    """Run all systems on one corpus and its questions."""
    given = read_evaluation_set(data)
    rows = _rows(given.corpus, speakers)
    say(f"{data.name}: {len(rows):,} rows, {len(given.questions):,} questions")
    trials: list[Trial] = []
    for name in SYSTEMS:
        folder = Path(tempfile.mkdtemp(dir=parent))
        trials.append(Trial(name, Task(folder, given.corpus, rows, bridge)))
    bridge.vectors([*(row.text for row in rows), *(q.query for q in given.questions)])  # in batches
    for trial in trials:
        trial.fill()
        for question in given.questions:
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


def print_results(data: Path, results: Sequence[Result]) -> None:
    """Print one table per folder."""
    table = Table(title=data.name, title_justify="left")
    for heading in ("system", "version", *FIGURES.values(), "failure"):
        table.add_column(heading)
    for result in results:
        values = [getattr(result, name) for name in FIGURES]
        cells = ["—" if value is None else number(value) for value in values]
        table.add_row(result.system, result.version, *cells, result.failure)
    Console(width=None if sys.stdout.isatty() else 170).print(table)


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
    bridge.vectors([WARM_UP])  # its dimensions are known now
    measured: dict[str, list[Result]] = {}
    # MemPalace keeps its files open and may create some while the folder is removed.
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
            "does_not_show": _DOES_NOT_SHOW,
            "speakers": options.speakers,
            "refused": refused_hosts,
            "results": {name: [*map(asdict, results)] for name, results in measured.items()},
        }
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
