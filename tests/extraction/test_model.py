"""Extraction by a model: its prompt, the answers that are accepted, and what becomes of them."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.agent.blocks import wrap_block
from memrecall.errors import ScriptExhausted
from memrecall.extraction import Extracted, Fact, KnownMemory, ModelExtractor
from memrecall.extraction.model import MAX_CHARACTERS, MAX_FACT, MAX_LINES, split_conversation
from memrecall.extraction.protocol import Entity, Relation
from memrecall.model.prompts import load_prompt
from memrecall.testing import Request, ScriptedClient, fail, say, silence, wait
from tests.cases import check_each_async, read_rows
from tests.waiting import wait_until

from .helpers import answer, extract, pairs, prompt_lines, read_facts, stated
from .transcripts import NOW, parse_turns

TIME = "2026-03-10T12:00:00Z"
PARIS = KnownMemory("k1", "User lives in Paris.", "user", "home", "user_profile", NOW)
PORT = KnownMemory("k2", "The staging database is on port 5433.", "staging database")
TEA = parse_turns("I like tea.")


class TestPrompt:
    async def test_prompt_has_setting_and_messages_of_people_and_assistants(self) -> None:
        turns = ("I live in Rome.", "assistant| Nice!", "tool| {}", "system| Hm", "Ann| Hi\nall")
        _, client = await extract(answer(facts=[]), parse_turns(*turns), prompt="only food")
        assert prompt_lines(client.requests[0]) == [
            {"now": TIME, "zone": "UTC", "guidance": "only food"},
            {"id": 1, "role": "user", "time": TIME, "text": "I live in Rome."},
            {"id": 2, "role": "assistant", "time": TIME, "text": "Nice!"},
            {"id": 5, "role": "user", "speaker": "Ann", "time": TIME, "text": "Hi\nall"},
        ]
        assert client.requests[0].messages[0].content == load_prompt("extract", "en")

    async def test_prompt_shows_no_recalled_block(self) -> None:
        block = wrap_block(["a secret"])
        turns = (f"I like tea. {block}", f"assistant| {block} Noted.", block)
        _, client = await extract(answer(facts=[]), parse_turns(*turns))
        texts = [line["text"] for line in prompt_lines(client.requests[0])[1:]]
        assert texts == ["I like tea.", "Noted."]

    async def test_prompt_marks_context_and_follows_language(self) -> None:
        context = parse_turns(*(f"assistant| 你住在哪里？{number}" for number in range(9)))
        _, client = await extract(answer(facts=[]), parse_turns("上海"), context=context)
        lines = prompt_lines(client.requests[0])[1:]
        assert [line.get("context") for line in lines] == [True] * 6 + [None]
        assert lines[0]["text"].endswith("3")
        assert client.requests[0].messages[0].content == load_prompt("extract", "zh")

    async def test_prompt_numbers_known_memories(self) -> None:
        _, client = await extract(answer(facts=[]), TEA, known=[PARIS, PORT])
        assert prompt_lines(client.requests[0])[1:3] == [
            {
                "known": 1,
                "text": PARIS.text,
                "about": "user",
                "type": "user_profile",
                "field": "home",
                "since": TIME,
            },
            {"known": 2, "text": PORT.text, "about": "staging database", "type": "general"},
        ]

    async def test_model_is_not_asked_without_a_persons_words(self) -> None:
        turns = ("assistant| I live in Rome.", "tool| x", "system| x", wrap_block(["a secret"]))
        for messages in (parse_turns(*turns), []):
            extracted, client = await extract([], messages)
            assert (extracted, client.requests) == (Extracted(), [])

    async def test_long_message_is_shown_in_part(self) -> None:
        _, client = await extract(answer(facts=[]), parse_turns("tea " * 5_000))
        assert len(prompt_lines(client.requests[0])[1]["text"]) == 4_000


class TestParts:
    def test_up_to_forty_messages_are_one_part(self) -> None:
        assert [len(part) for part in split_conversation(parse_turns(*["I like tea."] * 40))] == [
            40
        ]
        assert [len(part) for part in split_conversation(parse_turns(*["I like tea."] * 95))] == [
            40,
            40,
            15,
        ]
        assert split_conversation([]) == []

    @given(st.lists(st.integers(0, 9_000), max_size=90))
    def test_parts_are_small_and_hold_all_messages_in_order(self, sizes: list[int]) -> None:
        messages = parse_turns(*("x" * size for size in sizes))
        parts = split_conversation(messages)
        assert [message for part in parts for message in part] == messages
        for part in parts:
            assert 0 < len(part) <= MAX_LINES
            assert sum(min(len(message.text), 4_000) for message in part) <= MAX_CHARACTERS


class TestAnswers:
    async def test_answers_in_other_json_shapes_are_accepted(self) -> None:
        async def check(text: str) -> None:
            extracted, _ = await extract(say(text), TEA)
            assert extracted.problem == ""
            assert pairs(extracted.facts) == [("user", "User likes tea.")]

        await check_each_async(read_rows("facts", "answers"), check)

    @pytest.mark.parametrize("text", ['{"facts": []}', "[]", '{"facts": [], "relations": null}'])
    async def test_empty_answer_gives_no_facts(self, text: str) -> None:
        assert (await extract(say(text), parse_turns("Hello!")))[0] == Extracted()

    async def test_fact_without_a_text_is_reported(self) -> None:
        extracted, _ = await extract(
            answer(facts=[{"text": " "}, stated("User likes tea.", 1)]), TEA
        )
        assert pairs(extracted.facts) == [("user", "User likes tea.")]
        (reason,) = extracted.dropped
        assert "it has no text" in reason

    async def test_unusable_answer_is_requested_once_more(self) -> None:
        extracted, client = await extract([say("Sure!"), answer(facts=["User likes tea."])], TEA)
        assert (extracted.problem, pairs(extracted.facts)) == ("", [("user", "User likes tea.")])
        assert "cannot be used" in str(client.requests[1].messages[-1].content)

    async def test_second_unusable_answer_is_a_problem(self) -> None:
        async def check(case: tuple[list[Any], str]) -> None:
            steps, problem = case
            extracted, client = await extract(steps, TEA)
            assert (extracted.facts, extracted.relations) == ((), ())
            assert problem in extracted.problem
            assert client.remaining == 0

        await check_each_async(UNUSABLE, check)

    async def test_client_error_is_reported_without_its_message(self) -> None:
        def explode(_request: Request) -> Any:
            raise RuntimeError("the user said: I like tea")

        extracted, _ = await extract(explode, TEA)
        assert extracted.problem == "the model failed: RuntimeError"

    async def test_exhausted_script_is_an_error_of_the_caller(self) -> None:
        with pytest.raises(ScriptExhausted):
            await extract([], TEA)

    @pytest.mark.concurrent
    async def test_timeout_is_a_problem(self) -> None:
        extractor = ModelExtractor(ScriptedClient([wait(600, silence())]), seconds=0.01)
        extracted = await extractor.extract(TEA, now=NOW, zone=UTC)
        assert "0.01 seconds" in extracted.problem

    @pytest.mark.concurrent
    async def test_cancellation_is_raised(self) -> None:
        client = ScriptedClient([wait(600, silence())])
        task = asyncio.create_task(ModelExtractor(client).extract(TEA, now=NOW, zone=UTC))
        await wait_until(lambda: client.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


UNUSABLE: list[tuple[list[Any], str]] = [
    ([say("Sure!"), say("I like tea too.")], "not JSON"),
    ([silence(), silence()], "empty"),
    ([say('{"facts": 3}'), say('{"fact": []}')], "facts"),
    ([say('{"facts": [{"text": "User li'), say('{"facts": ["User lik')], "cut off"),
    ([say('{"facts": [{"text": "User has a cat."}, {"text": "Us')] * 2, "cut off"),
    ([fail("timeout")], "timeout"),
    ([fail("unreachable")], "unreachable"),
    ([fail("overflow")], "overflow"),
]


class TestFacts:
    async def test_fact_gets_sources_type_field_and_time(self) -> None:
        item = stated("User moved to Rome.", since="2026-03-02", type="user_profile", field="Home")
        messages = parse_turns("Guess what.", "I moved to Rome.")
        (fact,) = await read_facts([{**item, "sources": ["2", 9], "negated": None}], messages)
        assert fact == Fact(
            "User moved to Rome.",
            "user",
            "user_profile",
            "home",
            ("m1",),
            datetime(2026, 3, 2, tzinfo=UTC),
            keywords=fact.keywords,
        )
        assert "Rome" in fact.keywords

    async def test_fact_without_sources_comes_from_all_new_messages_of_people(self) -> None:
        messages = parse_turns("I like tea.", "Ann| And I like coffee.")
        context = parse_turns("Hi")
        for sources in ([], [0, 99], None, "all"):
            items = [{"text": "They like drinks.", "sources": sources}]
            (fact,) = await read_facts(items, messages, context=context)
            assert fact.source_ids == ("m0", "m1")

    async def test_subject_is_the_last_speaker_without_a_name(self) -> None:
        messages = parse_turns("Ann| I live in Rome.", "Bob| Ann hates olives.", "I like tea.")
        items = [
            {"text": "Ann lives in Rome.", "about": "ann", "sources": [1]},
            {"text": "Ann hates olives.", "about": "ANN", "sources": [2]},
            {"text": "Bob talks.", "about": "user", "sources": [2]},
            {"text": "User likes tea.", "about": "I", "sources": [3]},
            {"text": "The router is old.", "about": "the router", "sources": [3]},
        ]
        facts = await read_facts(items, messages)
        assert [fact.subject for fact in facts] == ["Ann", "Ann", "Bob", "user", "the router"]

    async def test_since_is_when_it_was_said_without_a_date_of_the_past(self) -> None:
        async def since(value: object, **fields: Any) -> datetime | None:
            (fact,) = await read_facts([stated("User likes tea.", 1, since=value, **fields)], TEA)
            return fact.valid_from

        past = datetime(2025, 12, 1, tzinfo=UTC)
        assert await since("2025-12-01") == past
        assert await since("2026-12-01") == NOW
        assert await since("some day") == NOW
        assert await since(None) == NOW
        assert await since("2025-12-01", type="plan") == NOW  # known since it was said

    async def test_equal_facts_are_one(self) -> None:
        facts = await read_facts([stated("User likes tea.", 1)] * 2, TEA)
        assert pairs(facts) == [("user", "User likes tea.")]

    async def test_facts_that_differ_in_one_word_are_two(self) -> None:
        texts = ["The staging database is on port 5544.", "The prod database is on port 5433."]
        messages = parse_turns("staging db is on 5544, prod on 5433")
        facts = await read_facts([stated(text, 1) for text in texts], messages, known=[PORT])
        assert [fact.text for fact in facts] == texts
        assert {fact.replaces for fact in facts} == {()}

    async def test_long_facts_end_with_a_sentence(self) -> None:
        texts = ["User lives in Porto. " * 40, "User lives in Porto and " * 40]
        facts = await read_facts([stated(text, 1) for text in texts], parse_turns("Porto."))
        assert facts[0].text == ("User lives in Porto. " * 23).strip()
        assert len(facts[1].text) == MAX_FACT

    async def test_replaces_names_memories_that_were_shown(self) -> None:
        item = stated("User lives in Rome.", 1, replaces=[2, "1", 1, 7, None])
        turns = parse_turns("Rome now.")
        extracted, _ = await extract(answer(facts=[item]), turns, known=[PORT, PARIS])
        assert [fact.replaces for fact in extracted.facts] == [("k1", "k2")]
        (reason,) = extracted.dropped
        assert reason.endswith("replaces a memory that was not shown: 7")

    async def test_fact_that_names_no_message_replaces_nothing(self) -> None:
        """It may come from the assistant, whose words were shown too."""
        item = stated("User lives in Oslo.", replaces=[1])
        turns = parse_turns("assistant| You live in Oslo.", "Hm.")
        extracted, _ = await extract(answer(facts=[item]), turns, known=[PARIS])
        assert [fact.replaces for fact in extracted.facts] == [()]
        (reason,) = extracted.dropped
        assert "replaces nothing: it names no message" in reason
        (fact,) = await read_facts([item], parse_turns("I live in Oslo."), known=[PARIS])
        assert fact.replaces == ("k1",)


class TestRelations:
    async def read(self, messages: Sequence[str], **value: Any) -> Extracted:
        extracted, _ = await extract(answer(facts=[], **value), parse_turns(*messages))
        assert extracted.problem == ""
        return extracted

    async def test_relation_gets_sources_verb_and_time(self) -> None:
        item = {
            "source": "User",
            "relationship": "Works at",
            "destination": "Siemens",
            "sources": [1],
            "since": "2025-01-01",
        }
        extracted = await self.read(["I work at Siemens."], relations=[item])
        since = datetime(2025, 1, 1, tzinfo=UTC)
        assert extracted.relations == (Relation("user", "works_at", "Siemens", ("m0",), since),)
        assert extracted.entities == (Entity("user", "person"), Entity("Siemens", "thing"))

    async def test_relation_that_ended_is_said_to_have_ended(self) -> None:
        item = {"source": "我", "relationship": "works_at", "destination": "西门子", "ended": True}
        (relation,) = (await self.read(["我离开西门子了。"], relations=[item])).relations
        assert (relation.source, relation.ended, relation.valid_from) == ("user", True, NOW)

    async def test_relations_without_two_ends_and_a_verb_are_left_out(self) -> None:
        items = [
            {"source": "user", "relationship": "knows", "destination": ""},
            {"source": "user", "relationship": "knows", "destination": "me"},
            {"source": "Ann", "relationship": "--", "destination": "Bob"},
            {"source": "Ann", "relationship": "knows", "destination": "ＡＮＮ"},
        ]
        assert (await self.read(["Hi"], relations=items)).relations == ()

    async def test_entities_are_the_ends_of_relations_and_those_with_aliases(self) -> None:
        relation = {"source": "user", "relationship": "lives_in", "destination": "Berlin"}
        items = [
            {"name": "Berlin", "type": "place"},
            {"name": "Hamburg", "type": "place"},
            {"name": "user", "type": "thing", "aliases": ["Nora", "user", ""], "sources": [1]},
            {"name": "KaDeWe", "type": "shop", "aliases": "Kaufhaus des Westens", "sources": [2]},
        ]
        turns = ["I'm Nora.", "The KaDeWe, Kaufhaus des Westens, is near. I live in Berlin."]
        extracted = await self.read(turns, relations=[relation], entities=items)
        assert extracted.entities == (
            Entity("user", "person", ("Nora",), ("m0",)),
            Entity("Berlin", "place"),
            Entity("KaDeWe", "thing", ("Kaufhaus des Westens",), ("m1",)),
        )


class TestVerification:
    """`verify="model"`: marked facts are asked about once."""

    TURNS = parse_turns("I have two cats.", "My rent is 800 euros.", "I like tea.")
    FACTS = answer(
        facts=[
            stated("User has 5 cats.", 1),
            stated("User's rent is 900 euros.", 2),
            stated("User likes tea.", 3),
        ]
    )

    async def test_marked_facts_are_asked_about_in_one_call(self) -> None:
        verdicts = answer(verdicts=[{"fact": 0, "stated": True}, {"fact": 1, "stated": False}])
        extracted, client = await extract([self.FACTS, verdicts], self.TURNS, verify="model")
        assert [(fact.text, fact.doubts) for fact in extracted.facts] == [
            ("User has 5 cats.", ()),
            ("User likes tea.", ()),
        ]
        (reason,) = extracted.dropped
        assert "User's rent is 900 euros." in reason
        assert client.requests[1].messages[0].content == load_prompt("verify", "en")
        lines = prompt_lines(client.requests[1])
        assert [line["id"] for line in lines[:3]] == [1, 2, 3]
        assert lines[3:] == [
            {"fact": 0, "text": "User has 5 cats.", "about": "user", "sources": [1]},
            {"fact": 1, "text": "User's rent is 900 euros.", "about": "user", "sources": [2]},
        ]

    async def test_facts_without_marks_need_no_second_call(self) -> None:
        facts = answer(facts=[stated("User likes tea.", 3)])
        _, client = await extract([facts], self.TURNS, verify="model")
        assert len(client.requests) == 1

    async def test_a_bare_list_of_verdicts_is_accepted(self) -> None:
        for verdicts in ('[{"fact": 0, "stated": false}]', '{"fact": "0", "stated": false}'):
            extracted, _ = await extract([self.FACTS, say(verdicts)], self.TURNS, verify="model")
            assert "User has 5 cats." not in [fact.text for fact in extracted.facts]

    @pytest.mark.parametrize("steps", [[fail("timeout")], [say("no"), say("no")]])
    async def test_a_failed_second_call_leaves_the_marks(self, steps: list[Any]) -> None:
        extracted, _ = await extract([self.FACTS, *steps], self.TURNS, verify="model")
        doubts = [fact.doubts for fact in extracted.facts]
        assert doubts == [("number",), ("number",), ()]
        assert extracted.problem == ""

    async def test_a_missing_verdict_leaves_the_mark_and_others_change_nothing(self) -> None:
        verdicts = answer(verdicts=[{"fact": 2, "stated": False}, {"fact": 9, "stated": False}])
        extracted, _ = await extract([self.FACTS, verdicts], self.TURNS, verify="model")
        assert [bool(fact.doubts) for fact in extracted.facts] == [True, True, False]

    async def test_without_the_setting_marks_stay_and_nothing_is_asked(self) -> None:
        extracted, client = await extract(self.FACTS, self.TURNS)
        assert [fact.doubts for fact in extracted.facts] == [("number",), ("number",), ()]
        assert (len(client.requests), extracted.dropped) == (1, ())


class TestSummary:
    TURNS = parse_turns("Hi! I moved to Berlin last week.", "assistant| Nice!")

    async def test_summary_is_the_models_within_the_limit(self) -> None:
        long = "User moved to Berlin. " * 9
        client = ScriptedClient([answer(summary=long)])
        summary = await ModelExtractor(client).summarise(self.TURNS, 50)
        assert summary.text == "User moved to Berlin. User moved to Berlin."
        assert (summary.by, summary.problem) == ("model", "")
        assert prompt_lines(client.requests[0])[0] == {"limit": 50}

    async def test_failed_summary_is_made_of_the_text(self) -> None:
        for steps, problem in (([fail("timeout")], "timeout"), ([answer(summary="")], "empty")):
            summary = await ModelExtractor(ScriptedClient(steps)).summarise(self.TURNS, 500)
            assert "I moved to Berlin last week." in summary.text
            assert (summary.by, problem in summary.problem) == ("text", True)

    async def test_nothing_is_summarised_without_a_call(self) -> None:
        extractor = ModelExtractor(ScriptedClient([]))
        assert (await extractor.summarise([], 100)).text == ""
        assert (await extractor.summarise(self.TURNS, 0)).text == ""


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["text", "facts", "sources", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
_ITEM = st.fixed_dictionaries(
    {"text": st.one_of(st.text(max_size=60), _JSON)},
    optional={
        name: _JSON | st.sampled_from(["user", "2026-03-01", "0001-01-01", "retraction", [1], "²"])
        for name in ("about", "type", "field", "sources", "since", "negated", "replaces")
    },
)
_RELATION = st.dictionaries(
    st.sampled_from(["source", "relationship", "destination", "sources", "since", "ended"]),
    _JSON | st.text(max_size=8),
)
_ENTITY = st.dictionaries(
    st.sampled_from(["name", "type", "aliases", "sources"]), _JSON | st.text(max_size=8)
)
_ANSWER = st.one_of(
    _JSON,
    st.lists(_ITEM, max_size=3),
    st.fixed_dictionaries(
        {"facts": st.lists(_ITEM, max_size=3)},
        optional={
            "relations": st.lists(_RELATION, max_size=3),
            "entities": st.lists(_ENTITY, max_size=3),
        },
    ),
)


@given(_ANSWER, _JSON)
async def test_no_answer_of_a_model_raises(value: object, verdicts: object) -> None:
    turns = parse_turns("I moved to Rome on 2 March.", "assistant| Nice.", "Ann| I have 2 cats.")
    first, second = say(json.dumps(value)), say(json.dumps(verdicts))
    steps = [first, lambda _: first, second, second]
    known = [PARIS, PORT]
    extracted, _ = await extract([*steps, second], turns, known=known, verify="model")
    for fact in extracted.facts:
        assert 0 < len(fact.text) <= MAX_FACT
        assert fact.source_ids
        assert {*fact.source_ids} <= {"m0", "m1", "m2"}
        assert {*fact.replaces} <= {"k1", "k2"}
        assert fact.valid_from is not None
        assert fact.valid_from <= NOW
