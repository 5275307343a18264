"""A demonstration with the defaults: no API key, no network, no server.

Imports a small bilingual chat history into `.demo/` and recalls what six requests refer to, without
a model. Then the facts, changes and relations that a model adds, from its recorded answers. The
database is kept, so that the commands printed at the end work.
"""

import asyncio
import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from memrecall.agent import TraceEvent
from memrecall.agent.terminal_view import RecallView, heading
from memrecall.dashboard.sample import SAMPLE_TIME, add_sample_chats
from memrecall.memory import AsyncMemory, Importer, ImportReport, Library, recall
from memrecall.settings import Settings
from memrecall.text.terminal import usable_width

ROOT = Path(__file__).resolve().parent.parent
CHAT = ROOT / "fixtures" / "demo" / "chat.jsonl"
FOLDER = ROOT / ".demo"
DATABASE = FOLDER / "memrecall.db"
NOW = SAMPLE_TIME  # fixed, so that "last month" always means the same
WIDTH = 90  # if the output is not a terminal


@dataclass(frozen=True, slots=True)
class Request:
    """A user's request and what it demonstrates."""

    shows: str
    user: str
    says: str


REQUESTS = (
    Request("A clear request", "lin", "我对什么过敏来着？"),
    Request("A vague request: which port?", "lin", "那个端口为什么不用默认的？"),
    Request("A question without an answer", "lin", "我的护照什么时候到期？"),
    Request("A clear request, in English", "maya", "Who has my spare key?"),
    Request(
        "A vague request, in English", "maya", "that flat with the north light, what was the catch?"
    ),
    Request("A question without an answer, in English", "maya", "When does my passport expire?"),
)

WITH_FACTS = (
    Request("A recall with facts", "lin", "谁接手赵磊的工作？"),
    Request("A recall with facts, in English", "maya", "What does Maya eat?"),
)
RECORDED = "They come from a recorded model; with your own: MEMRECALL_MODEL=… (docs/models.md)"
PEOPLE = (("lin", "林晓"), ("maya", "Maya"))
RELATIONS = 4  # of each person

NEXT_COMMANDS = (
    ("recall", "上次发版报的是什么错？", "--user", "lin"),
    ("trace", "show", "--last", "--user", "lin"),
    ("search", '"north light" OR zinc', "--syntax", "query", "--user", "maya"),
    ("neighbors", "lin-060", "--before", "3", "--after", "2", "--user", "lin"),
)


def main() -> None:
    """Run the demo in the terminal."""
    console = Console(highlight=False, soft_wrap=True)
    console.print("\n[bold]memrecall[/bold]  long-term memory and recall, on this machine only")
    asyncio.run(show(console))


async def show(console: Console) -> None:
    """Import the chat, run the recalls, and print commands to try."""
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
            f" in {seconds:.1f} s; as of {NOW:%Y-%m-%d}, times in UTC[/dim]"
        )
        for number, request in enumerate(REQUESTS, 1):
            console.print()
            title = f"{number}  {request.shows} (user {request.user})"
            console.print(heading(title, width))
            await ask(console, library, request, width)
        await show_model(console, library, width)
    console.print("\n[bold]Try next[/bold]")
    for words in NEXT_COMMANDS:
        console.print(f"   {command(*words)}", markup=False)


async def import_chat(library: Library) -> ImportReport:
    """Import the chat and wait until its embeddings are stored."""
    report = await Importer(library).run(CHAT, strict=True)
    await library.vectors.settle()
    if report.refused:
        raise SystemExit(f"{CHAT}: line {report.bad[0].line}: {report.bad[0].reason}")
    return report


async def show_model(console: Console, library: Library, width: int) -> None:
    """Show what a model adds to the same chats: facts, what they replace, and relations."""
    results = await add_sample_chats(library)
    await library.vectors.settle()
    outcomes = [outcome for result in results for outcome in result["results"]]
    console.print(f"\n[bold]What a model adds[/bold]  {len(outcomes)} facts of the same chats")
    console.print(f"[dim]{RECORDED}[/dim]")
    async with AsyncMemory(library=library) as memory:
        for number, (user, person) in enumerate(PEOPLE, len(REQUESTS) + 1):
            console.print()
            title = f"{number}  What changed, and relations (user {user})"
            console.print(heading(title, width))
            listed = await memory.get_all(user, superseded=True, limit=100)
            texts = {item["id"]: item["memory"] for item in listed["results"]}
            for item in listed["results"]:
                if item["superseded_by"]:
                    since = f"[yellow]outdated since {str(item['valid_to'])[:10]}[/yellow]"
                    console.print(f"    {item['memory']}  {since}")
                    console.print(f"    → {texts[item['superseded_by']]}\n")
            graph = await memory.graph(person, user_id=user)
            for edge in graph["relations"][:RELATIONS]:
                relation = f"{edge['source']} {edge['relationship']} {edge['destination']}"
                console.print(f"    [dim]{relation}[/dim]")
    for number, request in enumerate(WITH_FACTS, len(REQUESTS) + len(PEOPLE) + 1):
        console.print()
        console.print(heading(f"{number}  {request.shows} (user {request.user})", width))
        await ask(console, library, request, width)


async def ask(console: Console, library: Library, request: Request, width: int) -> None:
    """Run a recall and print its calls, handoff and evidence as they happen."""
    view = RecallView(width, brief=True)

    def show_event(event: TraceEvent) -> None:
        for line in view.render_event(event):
            console.print(line)

    result = await recall(
        request.says, user_id=request.user, library=library, as_of=NOW, observer=show_event
    )
    for line in view.render_result(result):
        console.print(line)


def command(*words: str) -> str:
    """Return a command line that works in the current folder."""
    program = "memrecall"
    own = Path(sys.executable).with_name(program)
    found = shutil.which(program)  # maybe of another environment
    if found is None or Path(found).parent != own.parent:
        program = shortest_path(own)
    return shlex.join([program, *words, "--db", shortest_path(DATABASE)])


def shortest_path(path: Path) -> str:
    """Return the relative or the absolute path, whichever is shorter."""
    return min(os.path.relpath(path), str(path), key=len)


if __name__ == "__main__":
    main()
