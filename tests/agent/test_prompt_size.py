"""Sizes of the prompt prefix and of search results."""

import json
from typing import Any

import pytest

from memrecall.agent import Recaller
from memrecall.memory import Library
from memrecall.model.openai_client import ServerClient
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient
from memrecall.types import Keyword, Language, NewMemory, NewMessage, Origin, Role

from ..libraries import open_library
from ..model.openai_server import ModelServer, serve, tool_call
from .recall_helpers import LIN, REQUEST, REQUEST_ZH, hand_off, search, user_messages

LARGEST_HEAD: dict[Language, int] = {"en": 6_000, "zh": 4_500}
LARGEST_RESULT = 3_000
REQUESTS: dict[Language, str] = {"en": REQUEST, "zh": REQUEST_ZH}


def head(body: dict[str, Any]) -> str:
    """Return the system prompt and the tools of a request, as sent."""
    first = body["messages"][0]
    assert first["role"] == "system"
    return str(first["content"]) + json.dumps(body["tools"], ensure_ascii=False)


@pytest.mark.concurrent
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_prompt_prefix_is_small_and_stable(
    language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with open_library(snapshots=False) as library:
        for user in ("one", "another"):
            await library.add_messages(Scope(user), [NewMessage(content=user, role=Role.USER)])
        with serve() as server:
            for user in ("one", "another"):
                await recall(library, server, user, language)
            heads = [head(body) for body in server.requests]
            choices = [body["tool_choice"] for body in server.requests]
    assert len(heads) == 2 * 4  # two users, two iterations, turns in each
    assert len(set(heads)) == 1
    assert len(heads[0]) < LARGEST_HEAD[language]
    assert choices[0] == "required"


async def recall(library: Library, server: ModelServer, user: str, language: Language) -> None:
    """Run a recall that searches, widens the window, searches again and hands off."""
    server.play(
        tool_call("search_memories", {"query": user}),
        tool_call(
            "expand_context_window", {"reason": "x", "current_size": 5, "requested_size": 10}
        ),
        tool_call("search_memories", {"query": "something else"}),
        tool_call(
            "handoff",
            {"reason": "x", "search_summary": "x", "confidence": 0.0, "needs_more_info": True},
        ),
    )
    client = ServerClient("tiny", base_url=server.url)
    result = await Recaller(library, Scope(user), client).recall(
        user_messages(12, last=REQUESTS[language])
    )
    await client.close()
    assert (result.stop_reason, result.iterations) == ("handoff", 2)


EN = 'The retry budget of the "billing" worker was raised after the incident.\n'
ZH = "上周三我们决定把结算服务的重试次数调高，并且把告警阈值改成五分钟。\n"


@pytest.mark.parametrize("text", [EN, ZH, EN + ZH])
async def test_largest_search_result_fits(text: str) -> None:
    keywords = tuple(Keyword(keyword=f"{text[:40]}{n}") for n in range(10))
    memories = [
        NewMemory(
            memory_key=f"{number:x>64}",
            content=f"{number} {text * 100}",
            summary=f"{number} {text * 5}",
            memory_type="t" * 50,
            keywords=keywords,
        )
        for number in range(10)
    ]
    async with open_library(scope=LIN, snapshots=False) as library:
        await library.add_memories(LIN, memories, origin=Origin.USER, actor="test")
        assert await result_size(library, text[:20]) < LARGEST_RESULT


async def test_largest_search_result_of_messages_fits() -> None:
    messages = [
        NewMessage(
            message_id=f"{number:x>64}",
            content=f"{number} {EN * 100}",
            role=Role.USER,
            speaker="s" * 255,
        )
        for number in range(10)
    ]
    async with open_library(scope=LIN, messages=messages, snapshots=False) as library:
        assert await result_size(library, EN[:20]) < LARGEST_RESULT


async def result_size(library: Library, query: str) -> int:
    """Return the size of a search result with ten hits."""
    client = ScriptedClient([search(query, limit=10), hand_off()])
    await Recaller(library, LIN, client).recall(REQUEST)
    text = str(client.requests[1].messages[-2].content[0].content)  # type: ignore[union-attr]
    assert json.loads(text)["returned"] == 10
    return len(text)
