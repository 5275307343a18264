"""The recorded flows of extraction: messages, known memories and model answers.

`make cassettes` plays them and writes `fixtures/cassettes/extraction`: the model's calls
(`NAME.jsonl`) and their results (`NAME.result.json`). The tests replay them and compare.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.extraction import KnownMemory, ModelExtractor, Utterance
from memrecall.model.cassette import RecordingClient
from memrecall.model.protocol import ChatCompletionClient
from memrecall.testing import ScriptedClient, say

from .helpers import answer
from .transcripts import NOW, parse_turns

FOLDER = Path(__file__).parents[2] / "fixtures" / "cassettes" / "extraction"
LIMIT = 200


@dataclass(frozen=True)
class Scenario:
    """One recorded flow: facts, decisions, relations, a summary."""

    steps: Sequence[Any]
    messages: Sequence[Utterance]
    known: Sequence[KnownMemory] = ()


MESSAGES_EN = parse_turns(
    "Hi! I'm Nora and I moved to Berlin last week.",
    "assistant| Welcome! Do you like it?",
    "Yes. I'm allergic to nuts, though. What can I cook tonight?",
)
MESSAGES_ZH = parse_turns(
    "我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常有名。"
)
KNOWN_EN = [KnownMemory("k1", "User lives in Paris.", "user", "home", "user_profile", NOW)]


def fact(text: str, field: str, source: int, **since: str) -> dict[str, Any]:
    """Return a fact about the user, as a model writes it."""
    about = {"text": text, "about": "user", "type": "user_profile", "field": field}
    return {**about, "sources": [source], **since}


def relation(source: str, relationship: str, destination: str) -> dict[str, Any]:
    ends = {"source": source, "relationship": relationship, "destination": destination}
    return {**ends, "sources": [1]}


NAME = fact("User's name is Nora.", "name", 1)
HOME = fact("User moved to Berlin in the week of 2026-03-02.", "home", 1, since="2026-03-02")
ALLERGY = fact("User is allergic to nuts.", "allergy", 3)
DECIDED_EN = answer(
    decisions=[
        {"fact": 0, "event": "ADD"},
        {"fact": 1, "event": "UPDATE", "known": 1, "reason": "moved from Paris to Berlin"},
        {"fact": 2, "event": "ADD"},
    ]
)
RELATED_EN = answer(
    entities=[{"name": "Nora", "type": "person"}, {"name": "Berlin", "type": "place"}],
    relations=[relation("Nora", "lives_in", "Berlin")],
)
SUMMARY_EN = answer(
    summary="Nora moved to Berlin in the week of 2026-03-02 and is allergic to nuts."
)
MOVED_ZH = parse_turns(
    "你好，我上周从北京搬到杭州了，现在在一家做地图的公司当测试。",
    "assistant| 恭喜！新家怎么样？",
    "挺好的。对了，我对海鲜过敏，今晚吃什么好？",
)
KNOWN_ZH = [KnownMemory("k1", "用户住在北京。", "user", "home", "user_profile", NOW)]
# Text before the JSON, a trailing comma and no end, as small models write it.
BROKEN_ZH = """好的，以下是事实：
```json
{"facts": [
  {"text": "用户2026年3月2日那周搬到杭州。", "type": "user_profile", "field": "home",
   "sources": [1]},
  {"text": "用户对海鲜过敏。", "type": "user_profile", "field": "allergy", "sources": [3]},
"""
DECIDED_ZH = answer(
    decisions=[
        {"fact": 0, "event": "UPDATE", "known": 1, "reason": "从北京搬到了杭州"},
        {"fact": 1, "event": "ADD"},
    ]
)
RELATED_ZH = answer(
    entities=[{"name": "用户", "type": "person"}, {"name": "杭州", "type": "place"}],
    relations=[relation("用户", "lives_in", "杭州")],
)
SUMMARY_ZH = answer(summary="用户2026年3月2日那周搬到杭州，对海鲜过敏。")

SCENARIOS: dict[str, Scenario] = {
    "standard.en": Scenario(
        [answer(facts=[NAME, HOME, ALLERGY]), DECIDED_EN, RELATED_EN, SUMMARY_EN],
        MESSAGES_EN,
        KNOWN_EN,
    ),
    "standard.zh": Scenario(
        [
            answer(
                facts=[
                    fact("用户叫李明。", "name", 1),
                    fact("用户在北京大学学习计算机科学，导师是张教授。", "school", 1),
                ]
            ),
            answer(
                entities=[
                    {"name": "李明", "type": "person"},
                    {"name": "北京大学", "type": "organization"},
                ],
                relations=[
                    relation("李明", "studies_at", "北京大学"),
                    relation("李明", "studies", "计算机科学"),
                ],
            ),
            answer(summary="李明在北京大学学习计算机科学，导师是张教授。"),
        ],
        MESSAGES_ZH,
    ),
    "mended.en": Scenario(
        [
            say('```json\n{"facts": [{"text": "User\'s name is Nora.", "sources": [1],}]\n```'),
            say("I would decide to add it."),
            DECIDED_EN,
            RELATED_EN,
            SUMMARY_EN,
        ],
        MESSAGES_EN,
        KNOWN_EN,
    ),
    "mended.zh": Scenario(
        [
            say(BROKEN_ZH),
            say(f"{BROKEN_ZH}]}}\n```"),
            say("我会更新住址。"),
            DECIDED_ZH,
            RELATED_ZH,
            SUMMARY_ZH,
        ],
        MOVED_ZH,
        KNOWN_ZH,
    ),
    "useless.en": Scenario(
        [*map(say, ("Sure!", "I cannot.", "?", "", "no", "no", "{}", "[]"))], MESSAGES_EN, KNOWN_EN
    ),
    "useless.zh": Scenario(
        [*map(say, ("好的！", "我做不到。", "？", "", "不", "不", "{}", "[]"))], MOVED_ZH, KNOWN_ZH
    ),
}


async def run(scenario: Scenario, client: ChatCompletionClient) -> dict[str, Any]:
    """Run a scenario with a client, at the fixed time of all scenarios."""
    extractor = ModelExtractor(client)
    result = await extractor.facts(scenario.messages, now=NOW, zone=UTC)
    decisions = await extractor.decide(result.facts, scenario.known)
    related = await extractor.relations(scenario.messages, now=NOW)
    summary = await extractor.summarise(scenario.messages, LIMIT)
    return {
        "facts": asdict(result),
        "decisions": asdict(decisions),
        "relations": asdict(related),
        "summary": asdict(summary),
    }


def result_text(results: dict[str, Any]) -> str:
    """Return the results as the text that must stay the same."""
    return json.dumps(results, ensure_ascii=False, indent=1, default=_time) + "\n"


def _time(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()


async def record() -> None:
    """Rewrite every cassette and its result; delete those without a scenario."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in FOLDER.glob("*.json*"):
        file.unlink()
    for name, scenario in SCENARIOS.items():
        client = RecordingClient(
            ScriptedClient(scenario.steps), FOLDER / f"{name}.jsonl", about={"now": NOW.isoformat()}
        )
        results = await run(scenario, client)
        (FOLDER / f"{name}.result.json").write_text(result_text(results), "utf-8")
        sys.stdout.write(f"{name}: {results['facts']['by']}\n")


if __name__ == "__main__":
    asyncio.run(record())
