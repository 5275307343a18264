"""A small bilingual chat history and a scripted model, shared by the examples."""

import json
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from memrecall import Library, Memory, NewMessage, Role, Scope, Settings
from memrecall.model import Request
from memrecall.testing import Step, say

LIN = Scope(user_id="lin")  # bound by your code: no tool and no model can name another user


def _message(number: int, day: int, role: Role, text: str) -> NewMessage:
    when = datetime(2026, 3, day, 9, number, tzinfo=UTC)
    return NewMessage(message_id=f"lin-{number}", role=role, ts=when, content=text)


HISTORY = [
    _message(1, 2, Role.USER, "周五请客户吃饭，帮我挑一家川菜馆。"),
    _message(2, 2, Role.ASSISTANT, "好的。有什么忌口吗？"),
    _message(3, 2, Role.USER, "我对花生过敏，带花生的菜都不能点。"),
    _message(4, 2, Role.ASSISTANT, "记住了：你对花生过敏，宫保鸡丁就不点了。"),
    _message(5, 9, Role.USER, "I need a train to Hamburg on Thursday."),
    _message(6, 9, Role.ASSISTANT, "Any wishes for the seat?"),
    _message(7, 9, Role.USER, "On trains I always take a window seat in the quiet coach."),
    _message(8, 9, Role.ASSISTANT, "Booked: a window seat in the quiet coach, Thursday at 8:14."),
    _message(9, 16, Role.USER, "数据库连接池定为 20，端口 5433。"),
    _message(10, 16, Role.ASSISTANT, "已记录：连接池 20，端口 5433。"),
    _message(11, 20, Role.USER, "The offsite will be in Lisbon, from 4 to 6 May."),
    _message(12, 20, Role.ASSISTANT, "Lisbon, 4 to 6 May. Shall I look for flights?"),
    _message(13, 20, Role.USER, "Yes, but no flight before nine in the morning."),
    _message(14, 23, Role.USER, "客户说上次的川菜很好吃，下次换一家粤菜馆。"),
]


@asynccontextmanager
async def opened_history() -> AsyncIterator[Library]:
    """Open a library on a temporary database with the history."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        settings = Settings(db=str(Path(folder) / "memrecall.db"), snapshots=False)
        async with await Library.open(settings) as library:
            await library.add_messages(LIN, HISTORY)
            await library.vectors.settle()  # until then, only words are searched
            yield library


@contextmanager
def opened_memory() -> Iterator[Memory]:
    """Open the sync memory of the user on a temporary database with the history."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        settings = Settings(db=str(Path(folder) / "memrecall.db"), snapshots=False)
        with Memory(settings=settings, user_id=LIN.user_id) as memory:
            memory.add(HISTORY, infer=False)
            yield memory


def quote_the_evidence(request: Request) -> Step:
    """Act as the assistant's model: quote the first memory of each recall in the request.

    A recall reaches the model as JSON: the result of a tool, or a line of the context.
    """
    return say(quote_memories([t for m in request.messages for t in _texts(m.content)]))


def quote_memories(texts: Iterable[str]) -> str:
    """Return an answer that quotes the first memory of each recall in the texts of a request."""
    lines = [line for text in texts for line in text.splitlines()]
    objects = [value for line in lines if isinstance(value := _load(line), dict)]
    answers = [value["memories"][0] for value in objects if value.get("memories")]
    blocks = [value for value in objects if "memory_key" in value][:1]
    quoted = " ".join(f"“{memory['content']}”" for memory in answers or blocks)
    return f"You said: {quoted}" if quoted else "Hello! What can I do for you?"


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [str(getattr(part, "content", "")) for part in parts]


def _load(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
