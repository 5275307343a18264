"""Complete offline recalls through the driver over a small bilingual history."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from memrecall.agent.driver import Recaller
from memrecall.agent.result import RecallResult
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.types import NewMessage, Role

from ...libraries import open_library

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
        ("what did I say on March 7 about basil", "I want to grow basil on the windowsill"),
    ],
)
async def test_intended_memory_ranks_first(history: Library, text: str, best: str) -> None:
    result = await recall(history, text)
    assert (result.memories or result.closest)[0].content == best
    assert result.stop_reason == "handoff"


async def test_likely_memory_is_handed_off(history: Library) -> None:
    for text in ("What is Ingrid allergic to?", "走廊要刷成什么颜色来着"):
        result = await recall(history, text)
        assert result.memories
        assert result.confidence >= 0.2
        assert not result.abstained


async def test_both_values_of_what_changed_are_handed_off(history: Library) -> None:
    """Which of them "before" means is for the reader to judge."""
    found = contents(await recall(history, "按照之前的网关端口来"))
    assert "网关的监听端口还是用 9600 吧" in found
    assert "网关的监听端口改成 9517，写在 /srv/gate/gate.toml" in found


async def test_assistant_advice_is_found_next_to_its_request(history: Library) -> None:
    result = await recall(history, "what did you suggest for the basil on the windowsill?")
    assert "Water it from below and pinch the tips every week." in contents(result)


@pytest.mark.parametrize("text", ["我养的鹦鹉叫什么名字", "Where is my bicycle?"])
async def test_nothing_is_sure_for_an_unknown_fact(history: Library, text: str) -> None:
    result = await recall(history, text)
    assert result.certainty != "sure"
    assert all(memory.certainty == "possible" for memory in result.memories)


async def test_request_without_a_match_leads_to_a_follow_up_question(history: Library) -> None:
    result = await recall(history, "Where is my bicycle?")
    assert result.abstained
    assert result.certainty == "none"
    assert "bicycle" in (result.handoff.follow_up_question or "")


async def test_closest_hits_are_quoted_if_nothing_is_handed_off(history: Library) -> None:
    result = await recall(history, "Where is my bicycle?")
    stored = {part for _, _, texts in HISTORY for part in texts}
    assert result.memories == []
    assert len(result.closest) == 3
    assert {memory.content for memory in result.closest} <= stored
    chances = [memory.probability or 0 for memory in result.closest]
    assert chances == sorted(chances, reverse=True)
    assert all(memory.certainty == "possible" for memory in result.closest)
    for memory in result.closest:
        assert memory.content in result.handoff.search_summary


async def test_nothing_is_closest_beside_evidence(history: Library) -> None:
    assert (await recall(history, "What is Ingrid allergic to?")).closest == []


@pytest.mark.parametrize(
    ("text", "session", "subject"),
    [
        ("就按之前那个来", "paint", "我们把走廊刷成浅灰色吧"),
        ("and what about that?", "herbs", "I want to grow basil on the windowsill"),
    ],
)
async def test_follow_up_is_searched_with_the_session(
    history: Library, text: str, session: str, subject: str
) -> None:
    """The passed request alone names no subject; the lines before it are in the store."""
    told = {part for _, name, texts in HISTORY if name == session for part in texts}
    result = await recall(history, text, session=session)
    (query,) = result.queries
    *before, last = query.arguments["query"].split("\n")
    assert last == text
    assert subject in before
    assert set(before) == told
    assert told.intersection(contents(result)[:1])


async def test_request_with_words_of_its_own_is_searched_without_the_session(
    history: Library,
) -> None:
    for text in ("What is Ingrid allergic to?", "网关的监听端口是多少"):
        result = await recall(history, text, session="paint")
        assert [query.arguments["query"] for query in result.queries] == [text]
        assert result.windows == [5]


async def test_recalls_are_deterministic(history: Library) -> None:
    first, second = [await recall(history, "What is Ingrid allergic to?") for _ in range(2)]
    assert first.trace.fixed() == second.trace.fixed()


class TestEarlierQuestions:
    """The same question is no evidence for its own answer; others hide no evidence."""

    @staticmethod
    async def recall(texts: Sequence[str], request: str) -> RecallResult:
        async with open_library() as library:
            for day, text in enumerate(texts):
                scope = Scope("user", session_id=f"day{day}")
                # What an assistant answers follows in the same session.
                messages = [
                    NewMessage(role=role, content=part, ts=START + timedelta(days=day, minutes=at))
                    for at, (role, part) in enumerate(
                        zip((Role.USER, Role.ASSISTANT), text.split("\n"), strict=False)
                    )
                ]
                await library.add_messages(scope, messages)
            recaller = Recaller(library, Scope("user"), clock=lambda: NOW)
            return await recaller.recall(request)

    @pytest.mark.parametrize(
        ("question", "request_text"),
        [
            ("what was my passport number", "What was my passport number?"),
            ("我的护照号码是多少", "我的护照号码是多少？"),
        ],
    )
    async def test_same_question_is_neither_handed_off_nor_quoted(
        self, question: str, request_text: str
    ) -> None:
        result = await self.recall([question], request_text)
        assert contents(result) == []
        assert result.closest == []
        assert result.confidence == 0
        assert question not in result.handoff.search_summary.replace(request_text, "")

    @pytest.mark.parametrize(
        ("fact", "questions", "request_text"),
        [
            (
                "My spare key is with my neighbour Joyce.",
                ["who keeps my spare key", "Do you still know who has got my spare key"],
                "Who keeps my spare key?",
            ),
            (
                "备用钥匙放在邻居乔伊斯那里。",
                ["我的备用钥匙在谁那里", "我的备用钥匙给谁了来着"],
                "我的备用钥匙在谁那里？",
            ),
        ],
    )
    async def test_questions_do_not_hide_the_fact(
        self, fact: str, questions: list[str], request_text: str
    ) -> None:
        same, other = questions
        assert contents(await self.recall([fact, same], request_text)) == [fact]
        both = contents(await self.recall([fact, other], request_text))
        assert sorted(both) == sorted([fact, other])

    async def test_reply_is_handed_off_beside_its_question(self) -> None:
        stored = ["Do you remember who keeps my spare key?", "Your neighbour Joyce does."]
        result = await self.recall(["\n".join(stored)], "Who keeps my spare key?")
        assert sorted(contents(result)) == sorted(stored)

    @pytest.mark.parametrize(
        ("question", "request_text"),
        [
            ("Did I tell you that my sister moved to Porto?", "Where did my sister move to?"),
            ("我是不是说过我妹搬到波尔图了？", "我妹搬到哪儿了？"),
            ("Who keeps my spare key?", "What did I ask about my spare key?"),
            ("我的备用钥匙在谁那里？", "关于备用钥匙，我问过什么？"),
        ],
    )
    async def test_question_with_information_is_evidence(
        self, question: str, request_text: str
    ) -> None:
        assert contents(await self.recall([question], request_text)) == [question]
