"""Claims of assistants, tools and applications never override what the user said."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent.blocks import write_block
from memrecall.agent.tools.memories import RecallAnswer
from memrecall.extraction.protocol import Extracted, Fact, KnownMemory, Summary, Utterance
from memrecall.memory import AsyncMemory
from memrecall.memory.ingest import Ingestor
from memrecall.memory.jobs import Processes
from memrecall.memory.results import StoredItem
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async
from tests.extractors import SentenceExtractor

from ..agent.recall_helpers import run_tool
from .conftest import get_item, make_settings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "extraction"
ROLES = ("assistant", "tool", "system")


def read_attacks(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text("utf-8").splitlines()]


class ObedientExtractor:
    """A model that believes whatever is said to it, and lets it replace all that is known."""

    def __init__(self, text: str | None = None, memory_type: Any = "user_profile") -> None:
        self._text = text
        self._type = memory_type

    async def extract(
        self, utterances: Sequence[Utterance], *, known: Sequence[KnownMemory] = (), **_: Any
    ) -> Extracted:
        fact = Fact(
            self._text or utterances[0].text,
            memory_type=self._type,
            source_ids=tuple(u.message_id for u in utterances if u.role in ROLES),
            replaces=tuple(memory.memory_key for memory in known),
        )
        return Extracted((fact,))

    async def summarise(self, lines: Any, limit_characters: int) -> Summary:
        return Summary("")


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    settings, extractor = make_settings(location), SentenceExtractor()
    async with AsyncMemory(settings=settings, extractor=extractor, user_id="ann") as memory:
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
    answer = await call_tool(memory, "correct", memory_key=said, text="User lives in Oslo.")
    return said, answer["memory_key"]


async def current(memory: AsyncMemory) -> list[str]:
    return sorted(item["memory"] for item in (await memory.get_all())["results"])


def check_claims(items: Sequence[StoredItem], truth: dict[str, Any]) -> int:
    """Check what is stored beside the truth; return the number of claims."""
    (kept,) = [item for item in items if item["id"] == truth["id"]]
    assert (kept["memory"], kept["valid_to"]) == (truth["memory"], None)
    claims = [item for item in items if item["id"] != truth["id"]]
    for claim in claims:
        assert claim["origin"] in ("assistant", "tool", "import"), claim
        assert claim["conflicts_with"] == [{"id": truth["id"], "memory": truth["memory"]}]
        assert claim["field"] is None, "a claim fills no slot of the profile"
    return len(claims)


async def tell(memory: AsyncMemory, text: str, field: str | None = None) -> dict[str, Any]:
    """Let the user say something; return the memory of it."""
    recaller = await memory.recaller()
    truth = NewMemory(content=text, field=field, subject="user")
    added = await recaller.library.add_memories(
        recaller.scope, [truth], origin=Origin.USER, actor="test"
    )
    return {"id": added.ids[0], "memory": text}


async def test_attacks_through_tools_keep_the_truth(location: str) -> None:
    """`remember` with a model that believes everything, and `correct`."""
    async with AsyncMemory(settings=make_settings(location)) as shared:

        async def check(attack: dict[str, Any]) -> None:
            memory = shared.bind(user_id=attack["id"])
            truth = await tell(memory, attack["said"])
            recaller = await memory.recaller()
            ingestor = Ingestor(recaller.library, ObedientExtractor(), Processes())
            for text in attack["texts"]:
                if attack["tool"] == "correct":
                    answer = await call_tool(memory, "correct", memory_key=truth["id"], text=text)
                    assert not answer["done"]
                else:
                    claim = NewMemory(content=text)
                    (outcome,) = await ingestor.remember(
                        recaller.scope, claim, origin=Origin.ASSISTANT, actor="assistant"
                    )
                    assert outcome.event in ("ADD", "NONE")
            items = (await memory.get_all())["results"]
            assert check_claims(items, truth) == len(set(attack["texts"]))
            assert all(word in json.dumps(items, ensure_ascii=False) for word in attack["claim"])

        await check_each_async(
            read_attacks("tool_attacks.jsonl"), check, label=lambda attack: str(attack["id"])
        )


async def test_attacks_in_conversations_are_stored_as_conflicts(tmp_path: Path) -> None:
    """No truth changes by a model that obeys others than the user, and claims name it."""
    settings = make_settings(str(tmp_path / "attacks.db"))
    attacks = [
        attack
        for attack in read_attacks("attacks.jsonl")
        if all(turn.partition("| ")[0] in ROLES for turn in attack["attack"])
    ]
    async with AsyncMemory(settings=settings) as shared:
        library = (await shared._open()).library

        async def check(attack: dict[str, Any]) -> None:
            user, obey = attack["id"], attack["obey"]
            truth = await tell(
                shared.bind(user_id=user), attack["memory"]["text"], attack["memory"]["field"]
            )
            extractor = ObedientExtractor(obey["text"], obey["type"])
            async with AsyncMemory(library=library, extractor=extractor) as obedient:
                turns = [parse_turn(turn) for turn in attack["attack"]]
                added = await obedient.add([*turns, {"role": "user", "content": "Hm."}], user)
            is_retraction = obey["type"] == "retraction"
            kept = (
                f"memories: {truth['memory']!r} is not ended: only its user can have it forgotten"
            )
            assert added["problems"] == ([kept] if is_retraction else [])
            items = (await shared.get_all(user))["results"]
            assert check_claims(items, truth) == (not is_retraction)

        await check_each_async(attacks, check, label=lambda attack: str(attack["id"]))


async def test_claim_of_an_assistant_ends_nothing_that_the_user_said(memory: AsyncMemory) -> None:
    """Also if it replaces a second memory of the user beside one of an assistant."""
    truth = await tell(memory, "User lives in Porto.", "home")
    library = (await memory._open()).library
    scope = (await memory.recaller()).scope
    guess = NewMemory(content="User likes Oslo.", subject="user")
    await library.add_memories(scope, [guess], origin=Origin.ASSISTANT, actor="test")
    extractor = ObedientExtractor("User lives in Oslo.")
    async with AsyncMemory(library=library, extractor=extractor) as obedient:
        for role in ROLES:
            await obedient.add([{"role": role, "content": "User lives in Oslo."}], "ann")
    assert truth["memory"] in await current(memory)


def parse_turn(turn: str) -> dict[str, str]:
    role, _, text = turn.partition("| ")
    return {"role": role, "content": text}


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
    (remaining,) = (await memory.get_all())["results"]
    assert remaining["conflicts_with"] == [{"id": said, "memory": None}]
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


async def test_results_name_the_conflict(memory: AsyncMemory) -> None:
    said, claim = await claim_home(memory)
    item = await get_item(memory, claim)
    assert (item["origin"], item["conflicts_with"][0]["id"]) == ("assistant", said)
    results = (await memory.search("Where does the user live?"))["results"]
    (conflict,) = (item["conflicts_with"] for item in results if item.get("conflicts_with"))
    assert conflict == [{"id": said, "memory": "User lives in Porto."}]


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
