"""The recorded scenarios: the request of each, and how its model behaves.

`make cassettes` runs them and writes `fixtures/cassettes`: the model's calls (`NAME.jsonl`) and
the trace they led to (`NAME.trace.json`). The tests replay them and compare.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient

from memrecall.agent import Recaller, RecallOptions, RecallResult
from memrecall.budget import Limits
from memrecall.memory import Library
from memrecall.model.cassette import RecordingClient
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, call, call_raw, calls, fail, say, silence, think

from ..libraries import open_library
from .recall_helpers import (
    ANN,
    LIN,
    NOW,
    REQUEST,
    REQUEST_ZH,
    detail,
    expand_window,
    fill_messages,
    hand_off,
    search,
    user_messages,
)

FOLDER = Path(__file__).parents[2] / "fixtures" / "cassettes"
NOTHING_EN = "Do that thing I asked you to make before"
NOTHING_ZH = "我之前让你做的那个东西"
SEARCH = search("database config port pool")


@dataclass(frozen=True)
class Scenario:
    """One recorded scenario."""

    steps: Sequence[Any]
    messages: object = REQUEST
    scope: Scope = ANN
    limits: Limits = field(default_factory=Limits)

    def client(self) -> ChatCompletionClient:
        """Return the model to record."""
        return ScriptedClient(self.steps)


SCENARIOS: dict[str, Scenario] = {
    # The flows of the specification, in both languages
    "standard.en": Scenario(
        [
            think("They mean an earlier database configuration.", search(keywords=["database"])),
            detail("a1"),
            hand_off("a1", confidence=0.85, reasoning="The user's own words."),
        ]
    ),
    "standard.zh": Scenario(
        [
            think(
                "用户指的是以前的数据库配置。", search("用户之前的数据库配置", keywords=["数据库"])
            ),
            detail("l1"),
            hand_off("l1", confidence=0.85, search_summary="PostgreSQL，端口 5433，连接池 20"),
        ],
        REQUEST_ZH,
        LIN,
    ),
    "several_searches.en": Scenario(
        [
            search("the plan we talked about", search_mode="semantic", limit=10),
            search("plan", time_range_days=14),
            detail("a4"),
            hand_off("a4", "a5", confidence=0.7, search_summary="tomatoes along the fence"),
        ],
        "Let's go with the plan from last time",
    ),
    "several_searches.zh": Scenario(
        [
            search("上次说的方案", search_mode="semantic", limit=10),
            search("上次说的方案", time_range_days=14),
            detail("l3"),
            hand_off("l3", confidence=0.7, search_summary="先迁移日志，再迁移订单"),
        ],
        "上次说的那个方案",
        LIN,
    ),
    "nothing_found.en": Scenario(
        [
            search("made before", search_mode="keyword", min_relevance_score=0.5),
            search("thing to make", search_mode="keyword", min_relevance_score=0.3, limit=10),
            hand_off(
                confidence=0.0,
                search_summary="Nothing fits.",
                needs_more_info=True,
                follow_up_question="Roughly when was it, and what was it about?",
            ),
        ],
        NOTHING_EN,
    ),
    "nothing_found.zh": Scenario(
        [
            search("之前做的东西", search_mode="keyword", min_relevance_score=0.5),
            search("做的东西", search_mode="keyword", min_relevance_score=0.3, limit=10),
            hand_off(
                confidence=0.0,
                search_summary="未找到用户提到的历史记忆",
                needs_more_info=True,
                follow_up_question="大概是什么时间、什么主题？",
            ),
        ],
        NOTHING_ZH,
        LIN,
    ),
    # Windows and budgets
    "window_expansion": Scenario(
        [search("it"), expand_window(10), search("database config"), hand_off("a1")],
        [
            {"role": "user", "content": "About my database config"},
            *user_messages(9, "Use it again"),
        ],
    ),
    "window_refused_twice": Scenario([expand_window(9), expand_window(9)], user_messages(3)),
    "budget_forced_handoff": Scenario(
        [SEARCH, hand_off("a1", confidence=0.6)], limits=Limits(model_calls=2)
    ),
    "budget_end": Scenario([SEARCH, search("dinner")], limits=Limits(model_calls=2)),
    # Models that misbehave
    "misbehaves_text": Scenario([SEARCH, say("It is port 5433."), say("As I said.")]),
    "misbehaves_leak": Scenario(
        [
            SEARCH,
            say('<tool_call>{"name": "handoff", "arguments": {}}</tool_call>'),
            say("functions.handoff {}"),
        ]
    ),
    "misbehaves_silence": Scenario([SEARCH, silence(), silence()]),
    "misbehaves_repeats": Scenario([SEARCH, SEARCH, SEARCH]),
    "misbehaves_searches_on": Scenario(
        [search("a1"), search("a2"), search("a3"), search("a4"), search("a5"), search("a6")]
    ),
    "misbehaves_arguments": Scenario(
        [
            call_raw("search_memories", "{oops"),
            call("search_memories", query="x", user_id="lin"),
            call("search_everything", query="x"),
            calls(SEARCH, detail("zzz")),
            *[hand_off("a1", "zzz")] * 2,
        ]
    ),
    "misbehaves_without_tools": Scenario([say("Hello!"), say("How can I help?")]),
    "misbehaves_fails": Scenario(
        [SEARCH, fail("timeout", "no answer"), fail("unreachable", "gone")]
    ),
}


async def run(scenario: Scenario, library: Library, client: ChatCompletionClient) -> RecallResult:
    """Run a scenario with a client, at the fixed time of all scenarios."""
    options = RecallOptions(limits=scenario.limits)
    recaller = Recaller(library, scenario.scope, client, options, clock=lambda: NOW)
    return await recaller.recall(scenario.messages)


def trace_text(recall: RecallResult) -> str:
    """Return the trace without ids and times, which must stay the same."""
    return json.dumps(recall.trace.fixed(), ensure_ascii=False, indent=1) + "\n"


async def record() -> None:
    """Rewrite every cassette and its trace; delete those without a scenario."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in FOLDER.glob("*.json*"):
        file.unlink()
    for name, scenario in SCENARIOS.items():
        async with open_library() as library:
            await fill_messages(library)
            client = RecordingClient(
                scenario.client(), FOLDER / f"{name}.jsonl", about={"now": NOW.isoformat()}
            )
            recall = await run(scenario, library, client)
        (FOLDER / f"{name}.trace.json").write_text(trace_text(recall), "utf-8")
        sys.stdout.write(f"{name}: {recall.stop_reason.value}\n")


if __name__ == "__main__":
    asyncio.run(record())
