"""Shared by the examples: a small bilingual history and a scripted model for the parent agent."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from memrecall import Library, NewMessage, Role, Scope, Settings
from memrecall.model import Request
from memrecall.testing import Step, say

LIN = Scope(user_id="lin")  # set by your code; tools and models cannot change it


def _said(number: int, day: int, role: Role, text: str) -> NewMessage:
    when = datetime(2026, 3, day, 9, number, tzinfo=UTC)
    return NewMessage(message_id=f"lin-{number}", role=role, ts=when, content=text)


SAID = [
    _said(1, 2, Role.USER, "周五请客户吃饭，帮我挑一家川菜馆。"),
    _said(2, 2, Role.ASSISTANT, "好的。有什么忌口吗？"),
    _said(3, 2, Role.USER, "我对花生过敏，带花生的菜都不能点。"),
    _said(4, 2, Role.ASSISTANT, "记住了：你对花生过敏，宫保鸡丁就不点了。"),
    _said(5, 9, Role.USER, "I need a train to Hamburg on Thursday."),
    _said(6, 9, Role.ASSISTANT, "Any wishes for the seat?"),
    _said(7, 9, Role.USER, "On trains I always take a window seat in the quiet coach."),
    _said(8, 9, Role.ASSISTANT, "Booked: a window seat in the quiet coach, Thursday at 8:14."),
    _said(9, 16, Role.USER, "数据库连接池定为 20，端口 5433。"),
    _said(10, 16, Role.ASSISTANT, "已记录：连接池 20，端口 5433。"),
    _said(11, 20, Role.USER, "The offsite will be in Lisbon, from 4 to 6 May."),
    _said(12, 20, Role.ASSISTANT, "Lisbon, 4 to 6 May. Shall I look for flights?"),
    _said(13, 20, Role.USER, "Yes, but no flight before nine in the morning."),
    _said(14, 23, Role.USER, "客户说上次的川菜很好吃，下次换一家粤菜馆。"),
]


@asynccontextmanager
async def opened_history() -> AsyncIterator[Library]:
    """Open a library on a temporary database with a few messages of Lin."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        settings = Settings(db=str(Path(folder) / "memrecall.db"), snapshots=False)
        async with await Library.open(settings) as library:
            await library.add_messages(LIN, SAID)
            yield library


def quote_the_evidence(request: Request) -> Step:
    """Play the parent's model: quote the first memory of each recall that is in the request.

    A recall reaches a model as JSON: a tool's answer, or a line of a block.
    """
    lines = [line for message in request.messages for line in _texts(message.content)]
    found = [value for line in lines if isinstance(value := _load(line), dict)]
    answers = [value["memories"][0] for value in found if value.get("memories")]
    blocks = [value for value in found if "memory_key" in value][:1]
    quoted = " ".join(f"“{memory['content']}”" for memory in answers or blocks)
    return say(f"You said: {quoted}" if quoted else "Hello! What can I do for you?")


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return content.splitlines()
    parts = content if isinstance(content, list) else []
    return [str(getattr(part, "content", "")) for part in parts]


def _load(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
