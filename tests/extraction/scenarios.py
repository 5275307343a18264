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
from memrecall.extraction.model import Verification
from memrecall.model.cassette import RecordingClient
from memrecall.model.protocol import ChatCompletionClient
from memrecall.testing import ScriptedClient, say

from .helpers import answer, stated
from .transcripts import NOW, parse_turns

FOLDER = Path(__file__).parents[2] / "fixtures" / "cassettes" / "extraction"
LIMIT = 200


@dataclass(frozen=True)
class Scenario:
    """One recorded flow: an extraction and a summary."""

    steps: Sequence[Any]
    messages: Sequence[Utterance]
    known: Sequence[KnownMemory] = ()
    verify: Verification = "none"


MESSAGES_EN = parse_turns(
    "Hi! I'm Nora and I moved to Berlin last week.",
    "assistant| Welcome! Do you like it?",
    "Yes. I'm allergic to nuts, though. What can I cook tonight?",
)
MESSAGES_ZH = parse_turns(
    "我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常有名。"
)
MOVED_ZH = parse_turns(
    "你好，我上周从北京搬到杭州了，现在在一家做地图的公司当测试。",
    "assistant| 恭喜！新家怎么样？",
    "挺好的。对了，我对海鲜过敏，今晚吃什么好？",
)
KNOWN_EN = [KnownMemory("k1", "User lives in Paris.", "user", "home", "user_profile", NOW)]
KNOWN_ZH = [KnownMemory("k1", "用户住在北京。", "user", "home", "user_profile", NOW)]


def fact(text: str, field: str, source: int, **fields: Any) -> dict[str, Any]:
    """Return a fact about the user, as a model writes it."""
    return stated(text, source, type="user_profile", field=field, **fields)


def relation(source: str, relationship: str, destination: str, **fields: Any) -> dict[str, Any]:
    ends = {"source": source, "relationship": relationship, "destination": destination}
    return {**ends, "sources": [1], **fields}


NAME = fact("User's name is Nora.", "name", 1)
HOME = fact(
    "User moved to Berlin in the week of 2026-03-02.", "home", 1, since="2026-03-02", replaces=[1]
)
ALLERGY = fact("User is allergic to nuts.", "allergy", 3)
EXTRACTED_EN = answer(
    facts=[NAME, HOME, ALLERGY],
    relations=[
        relation("user", "lives_in", "Paris", ended=True),
        relation("user", "lives_in", "Berlin", since="2026-03-02"),
    ],
    entities=[
        {"name": "user", "type": "person", "aliases": ["Nora"], "sources": [1]},
        {"name": "Berlin", "type": "place"},
    ],
)
EXTRACTED_ZH = answer(
    facts=[
        fact("用户叫李明。", "name", 1),
        fact("用户在北京大学学习计算机科学，导师是张教授。", "school", 1),
    ],
    relations=[
        relation("用户", "studies_at", "北京大学"),
        relation("张教授", "expert_in", "人工智能"),
    ],
    entities=[
        {"name": "用户", "type": "person", "aliases": ["李明"], "sources": [1]},
        {"name": "北京大学", "type": "organization"},
    ],
)
INVENTED = fact("User moved to Berlin on 2025-01-01 with 3 cats.", "home", 1, replaces=[1])
INVENTED_ZH = fact("用户2025年1月搬到杭州。", "home", 1, replaces=[1])
VERDICTS = answer(verdicts=[{"fact": 0, "stated": False}])
SUMMARY_EN = answer(
    summary="Nora moved to Berlin in the week of 2026-03-02 and is allergic to nuts."
)
SUMMARY_ZH = answer(summary="用户2026年3月2日那周搬到杭州，对海鲜过敏。")
# Text before the JSON, a trailing comma and no end, as small models write it.
BROKEN_ZH = """好的，以下是事实：
```json
{"facts": [
  {"text": "用户2026年3月2日那周搬到杭州。", "type": "user_profile", "field": "home",
   "sources": [1], "replaces": [1]},
  {"text": "用户对海鲜过敏。", "type": "user_profile", "field": "allergy", "sources": [3]},
"""

SCENARIOS: dict[str, Scenario] = {
    "standard.en": Scenario([EXTRACTED_EN, SUMMARY_EN], MESSAGES_EN, KNOWN_EN),
    "standard.zh": Scenario([EXTRACTED_ZH, SUMMARY_ZH], MESSAGES_ZH),
    "verified.en": Scenario(
        [answer(facts=[INVENTED, ALLERGY]), VERDICTS, SUMMARY_EN], MESSAGES_EN, KNOWN_EN, "model"
    ),
    "verified.zh": Scenario(
        [answer(facts=[INVENTED_ZH]), VERDICTS, SUMMARY_ZH], MOVED_ZH, KNOWN_ZH, "model"
    ),
    "mended.en": Scenario(
        [
            say('```json\n{"facts": [{"text": "User\'s name is Nora.", "sources": [1],}]\n```'),
            SUMMARY_EN,
        ],
        MESSAGES_EN,
        KNOWN_EN,
    ),
    "mended.zh": Scenario(
        [say(BROKEN_ZH), say(f"{BROKEN_ZH}]}}\n```"), SUMMARY_ZH], MOVED_ZH, KNOWN_ZH
    ),
    "useless.en": Scenario([*map(say, ("Sure!", "I cannot.", "{}", "[]"))], MESSAGES_EN, KNOWN_EN),
    "useless.zh": Scenario([*map(say, ("好的！", "我做不到。", "{}", "[]"))], MOVED_ZH, KNOWN_ZH),
}


async def run(scenario: Scenario, client: ChatCompletionClient) -> dict[str, Any]:
    """Run a scenario with a client, at the fixed time of all scenarios."""
    extractor = ModelExtractor(client, verify=scenario.verify)
    extracted = await extractor.extract(scenario.messages, now=NOW, zone=UTC, known=scenario.known)
    summary = await extractor.summarise(scenario.messages, LIMIT)
    return {"extracted": asdict(extracted), "summary": asdict(summary)}


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
        sys.stdout.write(f"{name}: {len(results['extracted']['facts'])} facts\n")


if __name__ == "__main__":
    asyncio.run(record())
