"""A demo of memrecall with its defaults: no API key, no network, no server.

It imports a small bilingual chat history into `.demo/` and recalls what six requests refer to, with
the built-in rules. The database is kept, so that the commands printed at the end work.
"""

import asyncio
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from memrecall.agent import TraceEvent
from memrecall.cli.output import usable_width
from memrecall.cli.views.recall import RecallView, heading
from memrecall.memory import Importer, ImportReport, Library, recall
from memrecall.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
CHAT = ROOT / "fixtures" / "demo" / "chat.jsonl"
FOLDER = ROOT / ".demo"
DATABASE = FOLDER / "memrecall.db"
NOW = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)  # fixed, so that "last month" always means the same
WIDTH = 90  # if there is no terminal


@dataclass(frozen=True, slots=True)
class Request:
    """What a user says, and what it is here to show."""

    shows: str
    user: str
    says: str


REQUESTS = (
    Request("A clear request", "lin", "我对什么过敏来着？"),
    Request(
        "A vague one: which configuration, and where is it?", "lin", "按照我之前的数据库配置来"
    ),
    Request("About something that was never said", "lin", "我的护照什么时候到期？"),
    Request("A clear request, in English", "maya", "Who has my spare key?"),
    Request("A vague one", "maya", "the flat we talked about, what was the catch again?"),
    Request("About something that was never said", "maya", "When does my passport expire?"),
)

GO_ON = (
    ("recall", "上次发版为什么失败？", "--user", "lin"),
    ("trace", "show", "--last", "--user", "lin"),
    ("search", '"north light" OR zinc', "--syntax", "query", "--user", "maya"),
    ("neighbors", "lin-060", "--before", "3", "--after", "2", "--user", "lin"),
)


def main() -> None:
    """Run the demo in the terminal."""
    console = Console(highlight=False, soft_wrap=True)
    console.print("\n[bold]memrecall[/bold]  long-term memory and recall, running offline")
    asyncio.run(show(console))


async def show(console: Console) -> None:
    """Import the chat, run the recalls and print the next steps."""
    width = usable_width(console.width) if console.is_terminal else WIDTH
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    FOLDER.mkdir()
    async with await Library.open(Settings(db=str(DATABASE))) as library:
        with console.status("loading the embedding model, importing"):
            start = time.perf_counter()
            report = await import_chat(library)
            seconds = time.perf_counter() - start
        console.print(
            f"[dim]{report.stored} messages of {len(report.users)} users imported and embedded"
            f" in {seconds:.1f} s; it is {NOW:%Y-%m-%d} here, and times are in UTC[/dim]"
        )
        for number, request in enumerate(REQUESTS, 1):
            console.print()
            title = f"{number}  {request.shows} (user {request.user})"
            console.print(heading(title, width))
            await ask(console, library, request, width)
    console.print("\n[bold]Go on with[/bold]")
    for words in GO_ON:
        console.print(f"   {command(*words)}", markup=False)


async def import_chat(library: Library) -> ImportReport:
    """Import the chat; its vectors are stored, too, when this returns."""
    report = await Importer(library).run(CHAT, strict=True)
    await library.vectors.settle()
    if report.refused:
        raise SystemExit(f"{CHAT}: line {report.bad[0].line}: {report.bad[0].reason}")
    return report


async def ask(console: Console, library: Library, request: Request, width: int) -> None:
    """Recall, and draw it as it happens: the calls, the handoff, the evidence."""
    view = RecallView(width, brief=True)

    def draw(event: TraceEvent) -> None:
        for line in view.render_event(event):
            console.print(line)

    result = await recall(
        request.says, user_id=request.user, library=library, as_of=NOW, observer=draw
    )
    for line in view.render_result(result):
        console.print(line)


def command(*words: str) -> str:
    """Return a command line that works in the current folder."""
    program = "memrecall"
    if shutil.which(program) is None:
        program = nearest(Path(sys.executable).with_name(program))
    return shlex.join([program, *words, "--db", nearest(DATABASE)])


def nearest(path: Path) -> str:
    """Return the shorter form of a path: relative or absolute."""
    return min(os.path.relpath(path), str(path), key=len)


if __name__ == "__main__":
    main()
