"""The calls to measure, each over HTTP and in process."""

import json
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from benchmarks.corpus import Corpus, Turn
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import LexicalQuery, SemanticQuery
from memrecall.store import MessageFilter

USER = "bench-user"
PLACES = 200  # different requests of a kind
_MESSAGES = f"/v1/users/{USER}/messages"
_WORD = re.compile(r"[A-Za-z]{4,}|[\u4e00-\u9fff]{2}")


@dataclass(frozen=True, slots=True)
class Question:
    """A request and the equivalent in-process call."""

    method: str
    path: str
    body: bytes
    run: Callable[[Library], Awaitable[object]]

    def request(self, key: str) -> bytes:
        """Return the bytes that a client sends."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"Authorization: Bearer {key}"]
        if self.body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def all_calls(corpus: Corpus, turns: Sequence[Turn]) -> dict[str, list[Question]]:
    """Return distinct questions of each kind."""
    chance = random.Random(9)
    positions = chance.sample(range(len(turns)), min(PLACES, len(turns)))
    questions = corpus.questions(PLACES)
    return {
        "range read": [_range(turns[at].ts) for at in positions],
        "neighbours": [_neighbours(f"m{at}") for at in positions],
        "lexical": [_lexical(text) for text in map(_words, questions) if text],
        "semantic": [_semantic(text) for text in questions],
    }


def nothing() -> Question:
    """Return a request without work, to measure the cost of HTTP and the client alone."""

    async def run(_library: Library) -> None:
        return None

    return Question("GET", "/healthz", b"", run)


def _words(question: str) -> str:
    """Return some words of a question."""
    return " OR ".join(dict.fromkeys(_WORD.findall(question)[:3]))


def _range(until: datetime) -> Question:
    async def run(library: Library) -> object:
        scope = Scope(USER)
        await library.require_user(scope)
        return await library.store.timeline(scope).page(MessageFilter(until=until))

    return Question("GET", f"{_MESSAGES}?until={quote(until.isoformat())}", b"", run)


def _neighbours(message_id: str) -> Question:
    async def run(library: Library) -> object:
        scope = Scope(USER)
        await library.require_user(scope)
        return await library.store.timeline(scope).neighbors(message_id)

    return Question("GET", f"{_MESSAGES}/{message_id}/neighbors", b"", run)


def _lexical(text: str) -> Question:
    async def run(library: Library) -> object:
        return await library.find_messages(Scope(USER), LexicalQuery(text))

    return Question("POST", "/v1/messages/lexical_search", _body(text), run)


def _semantic(text: str) -> Question:
    async def run(library: Library) -> object:
        return await library.nearest_messages(Scope(USER), SemanticQuery(text))

    return Question("POST", "/v1/messages/semantic_search", _body(text), run)


def _body(text: str) -> bytes:
    return json.dumps({"user_id": USER, "query_text": text}).encode()
