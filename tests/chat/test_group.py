"""Group chat: speakers, one member's view, mentions, silence, and the cost of a turn."""

import json
from datetime import timedelta
from typing import Any

import pytest

from memrecall.chat import GroupChat, Member
from memrecall.chat.group import load_view
from memrecall.errors import Forbidden, InvalidArgument, ModelFailed, NotFound
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.store import Timeline
from memrecall.testing import Request, ScriptedClient, Step, call, fail, repeat, say
from memrecall.types import NewMessage, Role

from ..extraction.helpers import answer
from .chat_helpers import (
    ANN,
    BOT,
    MEMBERS,
    NOW,
    QUESTION,
    TEAM,
    collect_turn,
    group_chat,
    make_options,
    message_kinds,
    reads,
    stored_messages,
    system_text,
    take_group_turn,
)


def two_assistants(library: Library, client: ScriptedClient) -> GroupChat:
    """Return a chat whose members include a second assistant, Deep."""
    members = (*MEMBERS, Member(member_id="bot2", name="Deep", ai=True))
    return GroupChat(library, TEAM, members, client, options=make_options(), clock=lambda: NOW)


class TestView:
    async def test_member_sees_messages_since_it_last_spoke(self, library: Library) -> None:
        chat = group_chat(library, say("收到。"), call("get_other_members_messages"), say("好。"))
        await chat.post("ann", "大家早")
        await chat.answer("bot")
        await chat.post("bo", "@小助手 会议几点？")
        await chat.post("ann", "我也想知道")
        turn = await collect_turn(chat.stream("bot"))
        (forged,) = turn.results("get_other_members_messages", forged=True)
        (real,) = turn.results("get_other_members_messages", forged=False)
        assert forged.content == real.content
        view = json.loads(real.content)["messages"]
        assert [(line["speaker"], line["text"]) for line in view] == [
            ("小波", "@小助手 会议几点？"),
            ("Ann", "我也想知道"),
        ]
        assert all(line["time"].endswith("Z") for line in view)

    async def test_context_separates_own_and_other_messages(self, library: Library) -> None:
        client = ScriptedClient([say("收到。"), say("三点。")])
        chat = group_chat(library, client=client)
        await chat.post("ann", "大家早")
        await chat.answer("bot")
        await chat.post("bo", "@小助手 会议几点？")
        await chat.answer("bot")
        first, second = client.requests
        forged = [
            *("call:get_other_members_messages", "result:get_other_members_messages"),
            *("call:is_mentioned", "result:is_mentioned"),
            *("call:recall_memory", "result:recall_memory"),
        ]
        assert message_kinds(first) == ["system", "system", "user", *forged]
        assert message_kinds(second) == ["system", "system", "user", "assistant", "user", *forged]
        assert [str(m.content) for m in second.messages[2:4]] == ["Ann: 大家早", "收到。"]
        assert "你是小助手" in system_text(second)
        assert "小波（也叫波波）" in system_text(second)

    async def test_answers_are_stored_with_speaker_and_without_calls(
        self, library: Library
    ) -> None:
        chat = group_chat(library, call("recall_memory", query="x"), say("@Ann 花生。"))
        assert (await chat.post("ann", f"@小助手 {QUESTION}")).mentions == ("bot",)
        turn = await collect_turn(chat.stream("bot"))
        messages = await stored_messages(library, TEAM)
        assert [(m.speaker, m.role, m.content) for m in messages] == [
            ("Ann", Role.USER, f"@小助手 {QUESTION}"),
            ("小助手", Role.ASSISTANT, "@Ann 花生。"),
        ]
        assert messages[1].metadata == {
            "member_id": "bot",
            "mentions": ["ann"],
            "recalled": ["team-0", "team-1", "team-2"],  # best first
        }
        assert messages[1].message_id == turn.final.message_id

    async def test_assistants_see_each_other(self, sqlite_library: Library) -> None:
        client = ScriptedClient([say("@Deep your turn."), say("Thanks.")])
        chat = two_assistants(sqlite_library, client)
        await chat.post("ann", "@Helper begin please")
        await chat.answer("bot")
        turn = await collect_turn(chat.stream("bot2"))
        (view,) = turn.results("get_other_members_messages", forged=True)
        assert [line["speaker"] for line in json.loads(view.content)["messages"]] == [
            *("Ann", "小助手")
        ]
        assert "are mentioned" in turn.results("is_mentioned", forged=True)[0].content
        assert not turn.final.silent

    async def test_turn_recalls_for_the_message_that_mentions_the_member(
        self, sqlite_library: Library
    ) -> None:
        chat = group_chat(sqlite_library, say("里斯本。"))
        await chat.post("ann", "@小助手 团建在哪里？")
        await chat.post("bo", "我先吃饭了")
        turn = await collect_turn(chat.stream("bot"))
        (recall,) = [e for e in turn.events if e.kind == "tool_call"][2:]
        assert json.loads(recall.arguments) == {"query": "团建在哪里？"}  # type: ignore[union-attr]

    async def test_long_view_is_cut_with_a_note(self, sqlite_library: Library) -> None:
        chat = group_chat(sqlite_library, say("好。"), view=10)
        for number in range(15):
            await chat.post("ann", f"第 {number} 条：" + "长" * 3_000)
        turn = await collect_turn(chat.stream("bot", mentions=["bot"]))
        (view,) = turn.results("get_other_members_messages", forged=True)
        lines = json.loads(view.content)
        assert [line["text"][:4] for line in lines["messages"]] == [
            f"第 {number} 条"[:4] for number in range(5, 15)
        ]
        assert "10" in lines["note"]
        assert len(view.content) < 14_000

    async def test_message_that_mentions_the_member_gets_most_space(
        self, sqlite_library: Library
    ) -> None:
        chat = group_chat(sqlite_library, say("ok"))
        for number in range(40):
            await chat.post("bo", f"short message {number}")
        question = "@Helper please check: " + "word " * 2_600
        await chat.post("ann", question)
        turn = await collect_turn(chat.stream("bot"))
        view = json.loads(turn.results("get_other_members_messages", forged=True)[0].content)
        assert view["messages"][-1]["text"] == question
        assert [line["text"] for line in view["messages"][:2]] == [
            *("short message 0", "short message 1")
        ]
        assert "note" not in view

    async def test_truncated_messages_are_noted(self, sqlite_library: Library) -> None:
        chat = group_chat(sqlite_library, say("ok"))
        for text in ("a" * 20_000, "b" * 500, "@Helper look at this", "c" * 300):
            await chat.post("ann", text)
        turn = await collect_turn(chat.stream("bot"))
        view = json.loads(turn.results("get_other_members_messages", forged=True)[0].content)
        lengths = [len(line["text"]) for line in view["messages"]]
        assert lengths[1:] == [500, 20, 300]
        assert 11_000 < lengths[0] < 12_000
        assert view["messages"][0]["text"].endswith("a…")
        assert view["note"] == "Long messages are truncated and end in “…”: 1."

    async def test_truncated_message_can_be_recalled(self, semantic_library: Library) -> None:
        filler = "We talked about trains. " * 700
        chat = group_chat(semantic_library, say("ok"), recalls=3)
        await chat.post("ann", f"The code of the garage door is 4711-QX. {filler}")
        await chat.post("bo", f"Another long note. {filler}")
        await chat.post("ann", "@Helper what is the code of the garage door?")
        turn = await collect_turn(chat.stream("bot"))
        events = turn.recall_answers(forged=True)[0]["events"]
        assert any("4711-QX" in event["text"] for event in events)

    async def test_turn_without_new_messages_fails(self, sqlite_library: Library) -> None:
        with pytest.raises(InvalidArgument, match="no other member has posted"):
            await group_chat(sqlite_library).answer("bot")

    async def test_unknown_members_are_refused(self, sqlite_library: Library) -> None:
        chat = group_chat(sqlite_library)
        with pytest.raises(NotFound, match="no member 'eve'"):
            await chat.post("eve", "hi")
        with pytest.raises(NotFound):
            await chat.answer("eve")
        with pytest.raises(NotFound):
            await chat.post("ann", "hi", mentions=["eve"])
        await chat.post("ann", "hi")
        with pytest.raises(NotFound, match="no member 'eve'"):
            await chat.answer("bot", mentions=["bot", "eve"])
        with pytest.raises(InvalidArgument, match="same id"):
            GroupChat(sqlite_library, TEAM, [ANN, ANN])


class TestSilence:
    async def test_unmentioned_member_may_stay_silent(self, library: Library) -> None:
        turn = await take_group_turn(library, "ann", "我去吃饭了", say(" [pass]\n"))
        assert turn.final.silent
        assert (turn.final.text, turn.final.message_id) == ("", None)
        assert "text_delta" not in turn.kinds
        assert [m.speaker for m in await stored_messages(library, TEAM)] == ["Ann"]

    async def test_mentioned_member_must_speak(self, sqlite_library: Library) -> None:
        client = ScriptedClient([say("[pass]"), say("在。")])
        turn = await take_group_turn(sqlite_library, "ann", "@小助手 在吗？", client=client)
        assert (turn.final.text, turn.final.silent) == ("在。", False)

    async def test_explicit_mentions_override_the_text(self, sqlite_library: Library) -> None:
        chat = group_chat(sqlite_library, say("[pass]"), say("[pass]"), say("ok"))
        await chat.post("ann", "@Helper hello", mentions=[])
        assert (await chat.answer("bot")).silent
        await chat.post("ann", "hello again")
        assert not (await chat.answer("bot", mentions=["bot"])).silent

    async def test_mention_is_answered_by_speaking(self, sqlite_library: Library) -> None:
        chat = group_chat(sqlite_library, say("在。"), say("[pass]"))
        await chat.post("ann", "@小助手 在吗？")
        await chat.answer("bot")
        await chat.post("ann", "好的，没事了")
        assert (await chat.answer("bot")).silent


class TestRepeatedRequest:
    """A repeated request for a turn with the same message returns the stored answer."""

    async def test_stored_answer_is_returned_again(self, library: Library) -> None:
        client = ScriptedClient([say("三点。")])
        chat = group_chat(library, client=client)
        posted = await chat.post("ann", "@小助手 几点？", message_id="g1")
        first = await collect_turn(chat.stream("bot", answers=posted.message_id))
        await chat.post("bo", "谢谢")
        repeated = await collect_turn(chat.stream("bot", answers=posted.message_id))
        assert repeated.kinds == ["text_delta", "final"]
        assert (repeated.final.text, repeated.final.message_id) == (
            "三点。",
            first.final.message_id,
        )
        assert repeated.final.model_calls == 0
        assert [m.content for m in await stored_messages(library, TEAM)] == [
            *("@小助手 几点？", "三点。", "谢谢")
        ]

    async def test_earlier_message_is_answered_with_its_own_view(
        self, sqlite_library: Library
    ) -> None:
        chat = group_chat(sqlite_library, fail("unreachable"), say("都是三点。"), say("三点。"))
        await chat.post("ann", "@小助手 几点？", message_id="g1")
        with pytest.raises(ModelFailed):
            await chat.answer("bot", answers="g1")
        await chat.post("bo", "@小助手 那饭呢？", message_id="g2")
        await chat.answer("bot", answers="g2")
        turn = await collect_turn(chat.stream("bot", answers="g1"))
        assert turn.final.text == "三点。"
        view = json.loads(turn.results("get_other_members_messages", forged=True)[0].content)
        assert [line["text"] for line in view["messages"]] == ["@小助手 几点？"]

    async def test_several_members_can_answer_one_message(self, sqlite_library: Library) -> None:
        client = ScriptedClient([say("one"), say("two")])
        chat = two_assistants(sqlite_library, client)
        await chat.post("ann", "@Helper @Deep hello there", message_id="g1")
        ends = [await chat.answer(member_id, answers="g1") for member_id in ("bot", "bot2")]
        assert [end.text for end in ends] == ["one", "two"]
        assert len({end.message_id for end in ends}) == 2


class TestRepeatedQuestion:
    """The same question asked again, after an answer that had no evidence."""

    async def test_answer_without_evidence_is_none_later(self, semantic_library: Library) -> None:
        group = Scope("kates")
        members = [
            Member(member_id="kate", name="Kate"),
            Member(member_id="bo", name="Bo"),
            Member(member_id="travel", name="Travel", ai=True),
        ]
        unknown, statement = "I do not know which city Kate lives in.", "I live in Porto now."
        question = "@Travel which city does Kate live in now?"
        client = ScriptedClient([say(unknown), say("In Porto.")])
        options = make_options(history=0)

        def chat(session: str) -> GroupChat:
            scope = group.with_session(session)
            return GroupChat(semantic_library, scope, members, client, options=options)

        await chat("first").post("bo", question)
        await chat("first").answer("travel")
        await chat("second").post("kate", statement)
        await chat("third").post("bo", question)
        turn = await collect_turn(chat("third").stream("travel"))
        (recalled,) = turn.recall_answers(forged=True)
        texts = [event["text"] for event in recalled["events"]]
        assert texts[0] == statement
        assert unknown not in texts

    async def test_clock_dates_the_answer(self, library: Library) -> None:
        chat = group_chat(library, say("在里斯本。"))
        await chat.post("ann", "@小助手 在哪里？", ts=NOW)
        await chat.answer("bot")
        assert [m.ts for m in await stored_messages(library, TEAM)][-1] == NOW

    async def test_message_posted_again_keeps_its_time(self, library: Library) -> None:
        times = iter([NOW, NOW + timedelta(minutes=1), NOW + timedelta(minutes=2)])
        chat = GroupChat(library, TEAM, MEMBERS, clock=lambda: next(times))
        first = await chat.post("ann", "大家早", message_id="g1")
        again = await chat.post("ann", "大家早", message_id="g1")
        assert (first.status, again.status) == ("new", "same")
        assert [m.ts for m in await stored_messages(library, TEAM)][-1] == NOW


class TestOffline:
    async def test_offline_answers_are_only_for_mentioned_members(
        self, semantic_library: Library
    ) -> None:
        chat = GroupChat(semantic_library, TEAM, MEMBERS, options=make_options(), clock=lambda: NOW)
        await chat.post("bo", "@小助手 Where will the offsite be?")
        end = await chat.answer("bot")
        assert "Ann, 2026-03-04: “The offsite will be in Lisbon, from 4 to 6 May.”" in end.text
        await chat.post("bo", "谢谢")
        assert (await chat.answer("bot")).silent

    async def test_group_recalls_its_own_messages(self, sqlite_library: Library) -> None:
        other = GroupChat(sqlite_library, Scope("others"), MEMBERS)
        await other.post("ann", "@Helper where will the offsite be?")
        assert "Lisbon" not in (await other.answer("bot")).text


class TestCost:
    """The cost of a turn depends on the view, not on the length of the chat."""

    @pytest.fixture
    def read_sizes(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The number of messages requested by each read."""
        sizes: list[int] = []
        genuine = Timeline.get_many

        async def count_messages(self: Timeline, message_ids: Any) -> Any:
            sizes.append(len(message_ids))
            return await genuine(self, message_ids)

        monkeypatch.setattr(Timeline, "get_many", count_messages)
        return sizes

    async def fill_group(self, library: Library, count: int, after: int) -> Timeline:
        """Store `count` messages of a group of ten, the last `after` of them after m3's."""
        batch = [
            NewMessage(
                role=Role.USER,
                content=f"message {number}",
                speaker=f"Member {number % 10}",
                ts=NOW + timedelta(seconds=number),
                metadata={
                    "member_id": "m3" if number == count - after - 1 else f"m{4 + number % 6}"
                },
            )
            for number in range(count)
        ]
        scope = Scope(f"group {count}", session_id="s")
        await library.add_messages(scope, batch)
        return library.store.timeline(scope)

    @pytest.mark.parametrize("after", [3, 40, 90])
    async def test_view_cost_does_not_depend_on_history(
        self, library: Library, read_sizes: list[int], after: int
    ) -> None:
        costs = []
        for count in (150, 1_000):
            timeline = await self.fill_group(library, count, after)
            read_sizes.clear()
            view = await load_view(timeline, "s", "m3", most=100, before=10)
            costs.append(sum(read_sizes))
            assert [m.content for m in view.others] == [
                f"message {number}" for number in range(count - after, count)
            ]
            assert view.before[-1].metadata["member_id"] == "m3"
            assert len(view.before) == 10
            assert not view.is_cut
        assert costs[0] == costs[1] <= 4 * (after + 10 + 16)

    async def test_turn_of_a_long_chat_sends_only_the_view(self, sqlite_library: Library) -> None:
        await self.fill_group(sqlite_library, 1_000, 5)
        members = [
            Member(member_id=f"m{number}", name=f"Member {number}", ai=number == 3)
            for number in range(10)
        ]
        client = ScriptedClient([say("ok")])
        scope = Scope("group 1000", session_id="s")
        chat = GroupChat(sqlite_library, scope, members, client, options=make_options(history=6))
        turn = await collect_turn(chat.stream("m3"))
        (view,) = turn.results("get_other_members_messages", forged=True)
        assert len(json.loads(view.content)["messages"]) == 5
        assert len(client.requests[0].messages) == 2 + 6 + 1 + 6


def test_member_names_are_id_name_and_nicknames() -> None:
    assert BOT.names == ("bot", "小助手", "助手", "Helper")


class TestSpeakers:
    async def test_model_cannot_answer_as_a_person(self, library: Library) -> None:
        client = ScriptedClient([say("I am Ann.")])
        chat = group_chat(library, client=client)
        await chat.post("bo", "@Ann 你在哪里？")
        with pytest.raises(InvalidArgument, match="'ann' is a person"):
            await chat.answer("ann")
        assert client.requests == []
        assert len(await stored_messages(library, TEAM)) == 1

    async def test_answer_is_stored_without_what_others_would_say(self, library: Library) -> None:
        turn = await take_group_turn(
            library, "ann", "@小助手 在哪里？", say("在里斯本。\nAnn: 谢谢\n小助手: 不客气")
        )
        assert (turn.final.text, turn.final.degraded) == ("在里斯本。", False)
        assert (await stored_messages(library, TEAM))[-1].content == "在里斯本。"

    async def test_answer_as_another_member_is_asked_for_again(
        self, sqlite_library: Library
    ) -> None:
        turn = await take_group_turn(
            sqlite_library, "ann", "@Helper where is it?", say("Ann: thanks"), say("In Lisbon.")
        )
        assert (turn.final.text, turn.final.model_calls) == ("In Lisbon.", 2)

    async def test_rules_do_not_speak_as_a_person(self, sqlite_library: Library) -> None:
        chat = GroupChat(sqlite_library, TEAM, MEMBERS, options=make_options(), clock=lambda: NOW)
        await chat.post("bo", "@Helper where will the offsite be?")
        with pytest.raises(InvalidArgument, match="no model may answer"):
            await chat.answer("bo")
        assert (await chat.answer("bot")).text.startswith("Ann, 2026-03-04: “The offsite")

    async def test_answer_names_the_message_that_it_answers(self, library: Library) -> None:
        """Messages between the two stay in the view of all members."""
        chat = group_chat(library, say("五点。"), say("好。"))
        await chat.post("ann", "@小助手 会议几点？", message_id="g1")
        await chat.post("bo", "我也想知道", message_id="g2")
        final = await chat.answer("bot")
        answer = (await stored_messages(library, TEAM))[-1]
        assert (final.parent_message_id, answer.parent_message_id) == ("g1", "g1")
        await chat.post("ann", "@小助手 谢谢", message_id="g3")
        again = await chat.answer("bot", answers="g3")
        assert again.parent_message_id == "g3"
        view = await load_view(
            library.store.timeline(TEAM), str(TEAM.session_id), "bot", most=100, before=10
        )
        ids = [message.message_id for message in view.before]
        assert ids == ["g1", "g2", final.message_id, "g3", again.message_id]


def say_lisbon(request: Request) -> Step:
    """Return the answer to a turn, or that a message states no fact."""
    return answer(facts=[]) if reads(request) else say("Lisbon.")


async def test_group_bound_to_a_space_is_stored_there_once(library: Library) -> None:
    memory = AsyncMemory(library=library)
    ann, ben = memory.bind(user_id="ann"), memory.bind(user_id="ben")
    await ann.create_space("team-x")
    await ann.space("team-x").set_member("ben", "reader")
    client = ScriptedClient([repeat(say_lisbon, 20)])
    options = {"options": make_options(extract=True), "clock": lambda: NOW, "space": "team-x"}
    own = Scope("ann", session_id="now")
    chat = GroupChat(library, own, MEMBERS, client, **options)  # type: ignore[arg-type]
    await chat.post("bo", "@Helper The offsite is in Lisbon, where is it?")
    assert (await chat.answer("bot")).text == "Lisbon."
    for user in ("ann", "ben"):
        inside = await library.store.spaces.enter(Scope(user), "team-x")
        stored = (await library.store.timeline(inside).page()).items
        assert {(m.speaker, m.author) for m in stored} == {
            ("小波 (written by ann)", "ann"),
            ("小助手 (written by ann)", "ann"),
        }
    assert (await library.store.timeline(own).page()).items == ()

    reading = GroupChat(library, Scope("ben"), MEMBERS, **options)  # type: ignore[arg-type]
    with pytest.raises(Forbidden):
        await reading.post("bo", "tea")
    await ann.space("team-x").set_member("ben", "admin")
    await reading.post("bo", "The gate code is 4711")
    await ann.space("team-x").set_member("bo", "contributor", name="Bo")
    await chat.post("bo", "The dinner is at Luigi's")  # who is in the space writes as themselves
    inside = await library.store.spaces.enter(Scope("bo"), "team-x")
    latest = (await library.store.timeline(inside).page()).items
    assert {m.author for m in latest if "Luigi" in m.content} == {"bo"}
    await ann.space("team-x").set_member("bo", "reader")
    with pytest.raises(Forbidden):
        await chat.post("bo", "tea")
    await ben.space("team-x").remove_member("ann")
    for attempt in (chat.post("ann", "tea"), chat.answer("bot")):
        with pytest.raises(NotFound, match="no such space"):
            await attempt
