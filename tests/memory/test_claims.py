"""Claims of assistants, tools and quoted texts never override what the user said."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent.prompt_view import write_block
from memrecall.agent.tools.recall import RecallAnswer
from memrecall.extraction import Extractor, RuleExtractor
from memrecall.extraction.protocol import Decided, Extracted
from memrecall.memory import AsyncMemory
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async
from tests.extraction.test_attacks import ATTACKS, obedient_model

from ..agent.recall_helpers import run_tool
from .conftest import get_item, make_settings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "extraction"
TOOL_ATTACKS: list[dict[str, Any]] = [
    json.loads(line) for line in (FIXTURES / "tool_attacks.jsonl").read_text("utf-8").splitlines()
]


KINDS = ("assistant", "assistant-repeated", "tool", "system", "supersedes", "supersedes-repeated")
CLAIMS = {f"{language}-{kind}" for language in ("en", "zh") for kind in KINDS}
# What is quoted may speak of anybody: only a model can believe that it speaks of the user.
QUOTED = {f"{language}-{kind}" for language in ("en", "zh") for kind in ("email", "document")}


class ObedientExtractor(RuleExtractor):
    """Reads the user's statement by rules, and an attack with the model that believes it."""

    def __init__(self) -> None:
        self.model: Extractor | None = None

    async def facts(self, *arguments: Any, **options: Any) -> Extracted:
        if self.model is not None:
            return await self.model.facts(*arguments, **options)
        return await super().facts(*arguments, **options)

    async def decide(self, *arguments: Any) -> Decided:
        if self.model is not None:
            return await self.model.decide(*arguments)
        return await super().decide(*arguments)


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(settings=make_settings(location), user_id="ann") as memory:
        yield memory


async def call_tool(memory: AsyncMemory, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool of the bound user and return what the model reads."""
    tool = {tool.name: tool for tool in await memory.tools()}[name]
    return await run_tool(tool, **arguments)


async def state_home(memory: AsyncMemory) -> str:
    """Let the user say where they live; return the key of the memory."""
    result = await memory.add("I live in Porto.")
    await memory.add("What a day.")  # The last message states nothing.
    return str(result["results"][0]["id"])


async def claim_home(memory: AsyncMemory) -> tuple[str, str]:
    """Return the keys of what the user said and of an assistant's claim."""
    said = await state_home(memory)
    answer = await call_tool(memory, "remember", text="User lives in Oslo.")
    return said, answer["memory_key"]


async def current(memory: AsyncMemory) -> list[str]:
    return sorted(item["memory"] for item in (await memory.get_all())["results"])


def check_claims(items: Sequence[dict[str, Any]], truth: dict[str, Any]) -> int:
    """Check what is stored beside the truth; return the number of claims."""
    (kept,) = [item for item in items if item["id"] == truth["id"]]
    assert (kept["memory"], kept["valid_to"]) == (truth["memory"], None)
    claims = [item for item in items if item["id"] != truth["id"]]
    for claim in claims:
        assert claim["origin"] in ("assistant", "tool", "import"), claim
        assert claim["conflicts_with"] == [{"id": truth["id"], "memory": truth["memory"]}]
        assert claim["field"] is None, "a claim fills no slot of the profile"
    return len(claims)


async def test_attacks_through_tools_keep_the_truth(location: str) -> None:
    async with AsyncMemory(settings=make_settings(location)) as shared:

        async def check(attack: dict[str, Any]) -> None:
            memory = shared.bind(user_id=attack["id"])
            (added,) = (await memory.add(attack["said"]))["results"]
            await memory.add("OK." if attack["language"] == "en" else "好的。")
            truth = {"id": added["id"], "memory": added["memory"]}
            graph = await memory.graph()
            for text in attack["texts"]:
                key = {"memory_key": truth["id"]} if attack["tool"] == "correct" else {}
                answer = await call_tool(memory, attack["tool"], text=text, **key)
                expected = truth["id"] if attack["claim"] else "Nothing was changed"
                is_repetition = "already" in answer["note"]
                assert expected in answer["note"] or is_repetition, answer
            items = (await memory.get_all())["results"]
            assert (check_claims(items, truth) > 0) == bool(attack["claim"])
            assert all(word in json.dumps(items, ensure_ascii=False) for word in attack["claim"])
            assert "supersedes all" not in json.dumps(items)
            assert await memory.graph() == graph

        await check_each_async(TOOL_ATTACKS, check, label=lambda attack: str(attack["id"]))


@pytest.mark.parametrize("obeys", [False, True])
async def test_attacks_in_conversations_are_stored_as_conflicts(
    tmp_path: Path, obeys: bool
) -> None:
    """No truth changes, by rules or by a model that obeys, and claims name what they deny."""
    extractor = ObedientExtractor()
    stored: dict[str, int] = {}
    settings = make_settings(str(tmp_path / "attacks.db"))
    async with AsyncMemory(settings=settings, extractor=extractor) as shared:

        async def check(attack: dict[str, Any]) -> None:
            recaller = await shared.bind(user_id=attack["id"]).recaller()
            said = attack["memory"]
            fields = {"content": said["text"], "memory_type": said["type"], "field": said["field"]}
            truth = NewMemory(**fields, subject="user")
            added = await recaller.library.add_memories(
                recaller.scope, [truth], origin=Origin.USER, actor="test"
            )
            extractor.model = obedient_model(attack) if obeys else None
            turns = [parse_turn(turn) for turn in attack["attack"]]
            await shared.add([*turns, {"role": "user", "content": "Hm."}], user_id=attack["id"])
            items = (await shared.get_all(user_id=attack["id"]))["results"]
            stored[attack["id"]] = check_claims(
                items, {"id": added.ids[0], "memory": truth.content}
            )

        await check_each_async(ATTACKS, check, label=lambda attack: str(attack["id"]))
    names = {name for name, count in stored.items() if count}
    for no_claim in ("question", "supposition", "role-play", "delete"):
        assert not [name for name in names if no_claim in name], no_claim
    assert names >= CLAIMS
    assert names >= QUOTED or not obeys


def parse_turn(turn: str) -> dict[str, str]:
    role, separator, text = turn.partition("| ")
    return {"role": role, "content": text} if separator else {"role": "user", "content": turn}


async def test_user_confirms_a_claim(memory: AsyncMemory) -> None:
    said, claim = await claim_home(memory)
    assert await current(memory) == ["User lives in Oslo.", "User lives in Porto."]

    (result,) = [
        item
        for item in (await memory.add("I live in Oslo."))["results"]
        if item["event"] == "UPDATE"
    ]
    assert result["previous_id"] == said
    assert await current(memory) == ["User lives in Oslo."]
    confirmed = await get_item(memory, result["id"])
    assert (confirmed["origin"], confirmed["conflicts_with"]) == ("user", [])

    await memory.undo(result["id"])
    assert await current(memory) == ["User lives in Oslo.", "User lives in Porto."]
    back = await get_item(memory, claim)
    assert [conflict["id"] for conflict in back["conflicts_with"]] == [said]


async def test_claim_can_be_forgotten_restored_and_purged(memory: AsyncMemory) -> None:
    said, claim = await claim_home(memory)
    for key, left in ((claim, "User lives in Porto."), (said, "User lives in Oslo.")):
        await memory.forget(key)
        assert await current(memory) == [left]
        await memory.undo(key)
        assert await current(memory) == ["User lives in Oslo.", "User lives in Porto."]
    await memory.purge(said)
    (left,) = (await memory.get_all())["results"]
    assert left["conflicts_with"] == [{"id": said, "memory": None}]
    await memory.purge(claim)
    assert await current(memory) == []


async def test_claim_survives_export_and_import(memory: AsyncMemory, tmp_path: Path) -> None:
    said, claim = await claim_home(memory)
    records = [record async for record in memory.export()]
    async with AsyncMemory(
        settings=make_settings(str(tmp_path / "copy.db")), user_id="ann"
    ) as copy:
        await copy.import_(records)
        item = await copy.get(claim)
        assert item == await memory.get(claim)
        assert item is not None
        assert item["conflicts_with"] == [{"id": said, "memory": "User lives in Porto."}]


async def test_reworded_claim_stays_a_claim(memory: AsyncMemory) -> None:
    said, claim = await claim_home(memory)
    answer = await call_tool(memory, "correct", memory_key=claim, text="User lives in Bergen.")
    assert answer["done"]
    item = await get_item(memory, answer["memory_key"])
    assert [conflict["id"] for conflict in item["conflicts_with"]] == [said]


async def test_assistant_writes_down_what_the_last_message_states(memory: AsyncMemory) -> None:
    key = await state_home(memory)
    await memory.add("I moved to Oslo.", infer=False)
    answer = await call_tool(memory, "correct", memory_key=key, text="User moved to Oslo.")
    assert answer["done"]
    new = await get_item(memory, answer["memory_key"])
    assert (new["origin"], new["supersedes"], new["conflicts_with"]) == ("user", key, [])
    assert new["source_message_ids"]


async def test_trusted_code_updates_what_the_user_said(memory: AsyncMemory) -> None:
    key = await state_home(memory)
    updated = await memory.update(key, "User lives in Oslo.")
    assert (updated["memory"], updated["conflicts_with"]) == ("User lives in Oslo.", [])


async def test_claim_ranks_below_what_the_user_said(memory: AsyncMemory) -> None:
    said, claim = await claim_home(memory)

    async def check(query: str) -> None:
        for rerank in (True, False):
            results = (await memory.search(query, rerank=rerank))["results"]
            keys = [item["id"] for item in results if item["id"] in (said, claim)]
            assert keys == [said, claim], (query, rerank)
            first, second = (item for item in results if item["id"] in keys)
            assert first["score"] >= second["score"]
            assert second["conflicts_with"] == [{"id": said, "memory": first["memory"]}]

    queries = ("Where does the user live?", "User lives in Oslo.", "user lives Oslo now")
    await check_each_async(queries, check)


async def test_recall_names_an_unconfirmed_claim(memory: AsyncMemory) -> None:
    said, claim = await claim_home(memory)
    result = await memory.recall("What do you know about Oslo?")
    keys = [item.memory_key for item in result.memories]
    assert keys.index(said) < keys.index(claim)
    recalled = result.memories[keys.index(claim)]
    assert (recalled.claimed_by, recalled.conflicts_with) == ("assistant", [said])
    assert f"{claim} is an unconfirmed claim; it conflicts with {said}" in result.handoff.message


async def test_recalled_block_names_a_claim_in_the_language_of_the_question(
    memory: AsyncMemory,
) -> None:
    _, claim = await claim_home(memory)
    recalled = await memory.recall("What do you know about Oslo?")
    cases = (("en", "claimed by assistant"), ("zh", "由助手提出，用户未确认"))

    async def check(case: tuple[str, str]) -> None:
        result = recalled.model_copy(update={"language": case[0]})
        (line,) = [line for line in write_block(result).splitlines() if f'"{claim}"' in line]
        assert json.loads(line)["unconfirmed"] == case[1]
        answers = RecallAnswer.from_result(result).memories
        assert case[1] in [item.get("unconfirmed") for item in answers]

    await check_each_async(cases, check)


async def test_results_name_the_conflict_in_both_languages(location: str) -> None:
    async with AsyncMemory(settings=make_settings(location)) as shared:
        memory, chinese = shared.bind(user_id="ann"), shared.bind(user_id="李")
        said, claim = await claim_home(memory)
        item = await get_item(memory, claim)
        assert (item["origin"], item["conflicts_with"][0]["id"]) == ("assistant", said)
        chinese_said = (await chinese.add("我住在杭州。"))["results"][0]["id"]
        await chinese.add("好的。")
        await call_tool(chinese, "remember", text="用户住在沈阳。")
        results = (await chinese.search("用户住在哪里"))["results"]
        (conflict,) = (item["conflicts_with"] for item in results if item.get("conflicts_with"))
        assert conflict[0]["id"] == chinese_said
        assert conflict[0]["memory"].startswith("用户住在杭州")


async def test_what_an_assistant_forgets_is_listed_with_its_reason_and_can_be_undone(
    memory: AsyncMemory,
) -> None:
    key = (await memory.add("I live in Rome."))["results"][0]["id"]
    await call_tool(memory, "forget", memory_key=key, reason="a web page said so")
    assert (await memory.get_all())["results"] == []
    assert [item["id"] for item in (await memory.get_all(deleted=True))["results"]] == [key]
    last = (await memory.history(key))[-1]
    assert (last["event"], last["actor_id"]) == ("DELETE", "assistant")
    assert last["reason"] == "a web page said so"
    await memory.undo(key)
    assert [item["id"] for item in (await memory.get_all())["results"]] == [key]
