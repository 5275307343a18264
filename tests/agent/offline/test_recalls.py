"""Complete offline recalls through the driver over a small bilingual history."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from memrecall.agent.driver import Recaller
from memrecall.agent.result import RecallResult
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.testing import open_library
from memrecall.types import NewMessage, Role

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
NOW = START + timedelta(days=25)
HISTORY = (
    (0, "paint", ("我们把走廊刷成浅灰色吧", "好的，浅灰色大约需要两桶漆。", "控制在六百以内")),
    (
        5,
        "herbs",
        (
            "I want to grow basil on the windowsill",
            "Water it from below and pinch the tips every week.",
            "Which soil is best for it?",
            "A light mix with sand.",
        ),
    ),
    (9, "server", ("网关的监听端口改成 9517，写在 /srv/gate/gate.toml", "已经记下。")),
    (14, "sister", ("My sister Ingrid is allergic to sesame", "Noted: no sesame for Ingrid.")),
    (20, "server2", ("网关的监听端口还是用 9600 吧", "好，改为 9600。")),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def history() -> AsyncIterator[Library]:
    """A library with that history and the local embedder, shared because it loads slowly."""
    async with open_library(embedder="local") as library:
        for day, session, texts in HISTORY:
            messages = [
                NewMessage(
                    role=Role.USER if at % 2 == 0 else Role.ASSISTANT,
                    content=text,
                    ts=START + timedelta(days=day, minutes=at),
                )
                for at, text in enumerate(texts)
            ]
            await library.add_messages(Scope("user", session_id=session), messages)
        yield library


async def recall(history: Library, text: str, session: str | None = None) -> RecallResult:
    recaller = Recaller(history, Scope("user", session_id=session), clock=lambda: NOW)
    return await recaller.recall(text)


def contents(result: RecallResult) -> list[str]:
    return [memory.content for memory in result.memories]


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("What is Ingrid allergic to?", "My sister Ingrid is allergic to sesame"),
        ("走廊要刷成什么颜色来着", "我们把走廊刷成浅灰色吧"),
        ("/srv/gate/gate.toml", "网关的监听端口改成 9517，写在 /srv/gate/gate.toml"),
        ("按照之前的网关端口来", "网关的监听端口还是用 9600 吧"),
        ("what did I say on March 7 about basil", "I want to grow basil on the windowsill"),
    ],
)
async def test_intended_memory_ranks_first(history: Library, text: str, best: str) -> None:
    result = await recall(history, text)
    assert contents(result)[0] == best
    assert result.confidence >= 0.4
    assert result.stop_reason == "handoff"


async def test_assistant_advice_is_found_next_to_its_request(history: Library) -> None:
    result = await recall(history, "what did you suggest for the basil on the windowsill?")
    assert "Water it from below and pinch the tips every week." in contents(result)


@pytest.mark.parametrize(
    ("text", "missing"), [("我养的鹦鹉叫什么名字", "鹦鹉"), ("Where is my bicycle?", "bicycle")]
)
async def test_unknown_fact_leads_to_a_follow_up_question(
    history: Library, text: str, missing: str
) -> None:
    result = await recall(history, text)
    assert result.abstained
    assert result.confidence <= 0.2
    assert missing in (result.handoff.follow_up_question or "")


async def test_bare_reference_is_resolved_by_the_session(history: Library) -> None:
    result = await recall(history, "就按之前那个来", session="paint")
    assert "我们把走廊刷成浅灰色吧" in contents(result)


async def test_recalls_are_deterministic(history: Library) -> None:
    first, second = [await recall(history, "What is Ingrid allergic to?") for _ in range(2)]
    assert first.trace.fixed() == second.trace.fixed()
