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
        return _to_bytes(self.method, self.path, key, self.body)


def http_request(
    method: str, path: str, key: str, body: object = None, user: str | None = None
) -> bytes:
    """Return a request with a JSON body; `user` is named in a header, for a proxy."""
    content = b"" if body is None else json.dumps(body).encode()
    return _to_bytes(method, path, key, content, user)


def _to_bytes(method: str, path: str, key: str, body: bytes, user: str | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += [f"X-Memrecall-User: {quote(user, safe='')}"] if user is not None else []
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def all_calls(corpus: Corpus, turns: Sequence[Turn], user: str = USER) -> dict[str, list[Question]]:
    """Return distinct questions of each kind about a user's turns."""
    chance = random.Random(9)
    positions = chance.sample(range(len(turns)), min(PLACES, len(turns)))
    questions = corpus.questions(PLACES)
    return {
        "range read": [_range(user, turns[at].ts) for at in positions],
        "neighbours": [_neighbours(user, f"m{at}") for at in positions],
        "lexical": [_lexical(user, text) for text in map(words_of, questions) if text],
        "semantic": [_semantic(user, text) for text in questions],
    }


def nothing() -> Question:
    """Return a request without work, to measure the cost of HTTP and the client alone."""

    async def run(_library: Library) -> None:
        return None

    return Question("GET", "/healthz", b"", run)


def words_of(text: str) -> str:
    """Return a query for some words of a text; empty if it has none."""
    return " OR ".join(dict.fromkeys(_WORD.findall(text)[:3]))


def _range(user: str, until: datetime) -> Question:
    async def run(library: Library) -> object:
        scope = Scope(user)
        await library.require_user(scope)
        return await library.store.timeline(scope).page(MessageFilter(until=until))

    return Question("GET", f"/v1/users/{user}/messages?until={quote(until.isoformat())}", b"", run)


def _neighbours(user: str, message_id: str) -> Question:
    async def run(library: Library) -> object:
        scope = Scope(user)
        await library.require_user(scope)
        return await library.store.timeline(scope).neighbors(message_id)

    return Question("GET", f"/v1/users/{user}/messages/{message_id}/neighbors", b"", run)


def _lexical(user: str, text: str) -> Question:
    async def run(library: Library) -> object:
        return await library.find_messages(Scope(user), LexicalQuery(text))

    return Question("POST", "/v1/messages/lexical_search", _body(user, text), run)


def _semantic(user: str, text: str) -> Question:
    async def run(library: Library) -> object:
        return await library.nearest_messages(Scope(user), SemanticQuery(text))

    return Question("POST", "/v1/messages/semantic_search", _body(user, text), run)


def _body(user: str, text: str) -> bytes:
    return json.dumps({"user_id": user, "query_text": text}).encode()
