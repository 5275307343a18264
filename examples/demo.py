"""What memrecall does, on its embedded defaults: no key, no network, no server.

Imports a small bilingual chat history into `.demo/` and asks it six questions. The database stays
there, so that the commands printed at the end work.
"""

import asyncio
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from memrecall.memory import Importer, ImportReport, Library
from memrecall.scope import Scope
from memrecall.search import Hit, SearchPage, SearchRequest, Why
from memrecall.search.request import Syntax
from memrecall.settings import Settings
from memrecall.text.query import parse_query, positive_words
from memrecall.text.snippets import snippets

ROOT = Path(__file__).resolve().parent.parent
CHAT = ROOT / "fixtures" / "demo" / "chat.jsonl"
FOLDER = ROOT / ".demo"
DATABASE = FOLDER / "memrecall.db"
NOW = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)  # fixed, so that "in March" means the same for ever

WIDTH = 100
BAR = 12
LIKELY = 0.5  # memrecall's default threshold
# A Chinese character with the punctuation after it, or a word with the space after it.
UNBROKEN = re.compile(
    r"[\u2e80-\uffef][，。；：、？！」）]*\s*|[^\s\u2e80-\uffef]+[，。；：、？！」）]*\s*"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A search, and what it is here to show."""

    shows: str
    user: str
    query: str
    syntax: Syntax = "plain"
    limit: int = 2

    def words(self) -> list[str]:
        """What to mark in the passages that were found."""
        return positive_words(parse_query(self.query)) if self.syntax == "query" else [self.query]


QUESTIONS = (
    Question("By meaning: the question is Chinese, the chat is English", "maya", "吃素还是吃鱼？"),
    Question("By an exact name", "lin", "db_config_001"),
    Question(
        f"By time: it is {NOW.day} {NOW:%B %Y}; the vet saw the dog in January, too",
        "maya",
        "Why did Biscuit see the vet in March?",
    ),
    Question(
        "By the query language: phrases, AND, OR, NOT, prefix*",
        "lin",
        '"连接池" AND NOT 测试',
        syntax="query",
        limit=3,
    ),
    Question("Asked in traditional characters, said in simplified ones", "lin", "媽媽的生日禮物"),
    Question("About something that was never said", "maya", "When does my passport expire?"),
)

GO_ON = (
    ("search", "birthday present for mother", "--user", "lin"),
    ("search", '"north light" OR zinc', "--syntax", "query", "--user", "maya"),
    ("neighbors", "lin-060", "--before", "3", "--after", "2", "--user", "lin"),
)


def main() -> None:
    """Run the demo in the terminal."""
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console.print("\n[bold]memrecall[/bold]  a colleague that recalls, on this machine alone")
    asyncio.run(show(console))


async def show(console: Console) -> None:
    """Import the chat, ask the questions, say how to go on."""
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
            f" in {seconds:.1f} s; times are in UTC[/dim]"
        )
        for number, question in enumerate(QUESTIONS, 1):
            await ask(console, library, number, question)
    console.print("\n[bold]Go on with[/bold]")
    for words in GO_ON:
        console.print(f"   {command(*words)}", soft_wrap=True, markup=False)


async def import_chat(library: Library) -> ImportReport:
    """Import the chat; its vectors are stored, too, when this returns."""
    report = await Importer(library).run(CHAT, strict=True)
    await library.vectors.settle()
    if report.refused:
        raise SystemExit(f"{CHAT}: line {report.bad[0].line}: {report.bad[0].reason}")
    return report


async def ask(console: Console, library: Library, number: int, question: Question) -> None:
    """Search, and show the best of what was found."""
    request = SearchRequest(question.query, syntax=question.syntax, limit=question.limit, now=NOW)
    start = time.perf_counter()
    page = await library.search(Scope(question.user), request)
    seconds = time.perf_counter() - start
    console.print()
    console.print(Text.assemble((f"{number}  ", "bold cyan"), (question.query, "bold")))
    console.print(Text(f"   {question.shows} (user {question.user})", "dim"))
    for hit in page.results:
        console.print(draw_hit(hit, question.words(), console.width))
    console.print(Text(f"   {sum_up(page, seconds)}", "dim"))


def draw_hit(hit: Hit, words: list[str], width: int) -> Text:
    """A hit: how good it is on the left; who, when, the passage and the reasons on the right."""
    style = "green" if hit.score >= LIKELY else "yellow"
    filled = round(hit.score * BAR)
    lines = [
        Text.assemble(
            f"   {hit.score:.2f} ", ("━" * filled, style), ("─" * (BAR - filled), "dim"), "  "
        )
    ]
    indent = lines[0].cell_len
    lines[0].append(hit.speaker or hit.kind, "bold")
    lines[0].append(f"  {hit.ts:%Y-%m-%d %H:%M}  {hit.key}", "dim")
    passage = fold(mark(hit.content, words), width - indent)
    below = (*passage, Text(explain(hit.why), "dim"))
    lines.extend(Text(" " * indent) + line for line in below)
    return Text("\n").join(lines)


def mark(content: str, words: list[str]) -> Text:
    """The passage that answers, with the words that were asked for in colour."""
    start, end = "\x02", "\x03"  # cannot occur in the chat
    passage = snippets(content, words, limit=1, before=start, after=end)[0]
    pieces = passage.replace("\n", " ").replace(end, start).split(start)
    return Text.assemble(
        *((piece, "bold yellow" if at % 2 else "") for at, piece in enumerate(pieces))
    )


def fold(text: Text, width: int) -> Iterator[Text]:
    """The text in lines; unlike rich alone, it also breaks them between Chinese characters."""
    breaks: list[int] = []
    used = 0
    for word in UNBROKEN.finditer(text.plain):
        cells = cell_len(word.group())
        if used and used + cells > width:
            breaks.append(word.start())
            used = 0
        used += cells
    for line in text.divide(breaks):
        line.rstrip()
        yield line


def explain(why: Why) -> str:
    """The parts of a score, the largest first."""
    parts = {
        "words": why.lexical,
        "meaning": why.semantic,
        "neighbours": why.neighbours,
        "time": why.time,
    }
    told = sorted(parts.items(), key=lambda part: -part[1])
    return "why: " + ", ".join(f"{name} {value:+.1f}" for name, value in told if value >= 0.05)


def sum_up(page: SearchPage, seconds: float) -> str:
    """One line under the hits."""
    shown = f"the best {len(page.results)} of {page.total_found}, in {seconds * 1000:.0f} ms"
    if any(hit.score >= LIKELY for hit in page.results):
        return shown
    return f"{shown}; nothing reaches {LIKELY}: perhaps never said"


def command(*words: str) -> str:
    """A command line that works where this was started."""
    program = "memrecall"
    if shutil.which(program) is None:
        program = nearest(Path(sys.executable).with_name(program))
    return shlex.join([program, *words, "--db", nearest(DATABASE)])


def nearest(path: Path) -> str:
    """The shorter of a path's names: from here, or from the root."""
    return min(os.path.relpath(path), str(path), key=len)


if __name__ == "__main__":
    main()
