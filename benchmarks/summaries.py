"""How many labelled answers a summary by rules keeps, for its length.

    python benchmarks/summaries.py /path/to/locomo_dev /path/to/lifebench_zh_dev
    python benchmarks/summaries.py --characters 800 /path/to/locomo_dev

A folder has `corpus.jsonl` (messages) and `queries.jsonl` (questions with an answer and the ids of
their evidence). Every session is summarised within the same number of characters, once from its
messages and once from summaries of its turns. An answer counts if most of its content words are in
the text, and only answers that the session's messages contain. The baseline is the session's start.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file, not as a module
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from memrecall.extraction import Utterance
from memrecall.extraction.summaries import summarise
from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.tokens import BREAK, analyze
from memrecall.text_length import estimate_tokens
from memrecall.types import Role, parse_time

_CONTAINED = 0.6  # of an answer's content words
_MAX_SESSIONS = 60
_MAX_MESSAGES = 100  # of a session, its first ones
_MESSAGES_PER_PART = 6


@dataclass(frozen=True)
class Session:
    """The messages of a session and the answers that they contain."""

    messages: list[Utterance]
    answers: list[frozenset[str]]


@dataclass
class Count:
    """Answers contained in summaries, and the summaries' tokens."""

    answers: int = 0
    tokens: int = 0

    @property
    def density(self) -> float:
        """Answers per 100 tokens."""
        return 100 * self.answers / self.tokens if self.tokens else 0.0


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that carry meaning."""
    return frozenset(analyze(text).atoms) - STOP_TERMS - STOP_CHARS - {BREAK}


def contains(text: frozenset[str], answer: frozenset[str]) -> bool:
    """Return True if a text has most content words of an answer."""
    return bool(answer) and len(answer & text) >= _CONTAINED * len(answer)


def read_sessions(folder: Path) -> Iterator[Session]:
    """Yield the sessions of a folder that contain the answer to a question."""
    sessions: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in _rows(folder / "corpus.jsonl"):
        if len(sessions[row["user_id"], row["session_id"]]) < _MAX_MESSAGES:
            sessions[row["user_id"], row["session_id"]].append(row)
    place = {
        (row["user_id"], row["message_id"]): key for key, rows in sessions.items() for row in rows
    }
    answers: defaultdict[tuple[str, str], list[frozenset[str]]] = defaultdict(list)
    for query in _rows(folder / "queries.jsonl"):
        words = content_words(str(query.get("answer") or ""))
        ids = ((query["user_id"], name) for name in query["evidence"])
        for key in {place[name] for name in ids if name in place}:
            text = content_words(" ".join(row["content"] for row in sessions[key]))
            if contains(text, words):
                answers[key].append(words)
    for key in list(answers)[:_MAX_SESSIONS]:
        yield Session([_utterance(row) for row in sessions[key]], answers[key])


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, file.read_text("utf-8").splitlines())


def _utterance(row: dict[str, Any]) -> Utterance:
    role = Role(row["role"])
    speaker = row.get("speaker") or None
    return Utterance(row["message_id"], speaker, role, row["content"], parse_time(row["ts"]))


def start(messages: Sequence[Utterance], limit: int) -> str:
    """Return the start of a conversation: the baseline."""
    return "\n".join(f"{item.speaker or item.role}: {item.text}" for item in messages)[:limit]


def layered(messages: Sequence[Utterance], limit: int) -> str:
    """Return a summary of the summaries of some messages each."""
    starts = range(0, len(messages), _MESSAGES_PER_PART)
    parts = [messages[start : start + _MESSAGES_PER_PART] for start in starts]
    return summarise([summarise(part, limit) for part in parts], limit)


METHODS: dict[str, Callable[[Sequence[Utterance], int], str]] = {
    "start": start,
    "summary": summarise,
    "layers": layered,
}


def measure(sessions: Sequence[Session], limit: int) -> dict[str, Count]:
    """Return the count of each method."""
    counts = {name: Count() for name in METHODS}
    for session in sessions:
        for name, write in METHODS.items():
            text = write(session.messages, limit)
            words = content_words(text)
            counts[name].answers += sum(contains(words, answer) for answer in session.answers)
            counts[name].tokens += estimate_tokens(text)
    return counts


def main() -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(description="labelled answers in summaries by rules")
    parser.add_argument("folders", nargs="+", type=Path, help="corpus.jsonl and queries.jsonl")
    parser.add_argument("--characters", type=int, default=400, help="length of a summary")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        sessions = list(read_sessions(folder))
        total = sum(len(session.answers) for session in sessions)
        counts = measure(sessions, arguments.characters)
        if arguments.json:
            figures = {name: {**vars(count)} for name, count in counts.items()}
            print(json.dumps({"folder": folder.name, "answers": total, **figures}))
            continue
        print(f"{folder.name}: {len(sessions)} sessions, {total} answers")
        for name, count in counts.items():
            share = count.answers / total if total else 0.0
            print(
                f"  {name:14} {count.density:5.2f} answers per 100 tokens"
                f"  {share:6.1%} of the answers  {count.tokens} tokens"
            )


if __name__ == "__main__":
    main()
