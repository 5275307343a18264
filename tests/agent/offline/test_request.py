"""Request parsing: references, content words, exact terms, times."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.offline.request import ParsedRequest, parse_request
from memrecall.messages import ConversationMessage
from memrecall.text.language import language_of
from memrecall.types import Role
from tests.cases import check_each

NOW = datetime(2026, 4, 21, 9, tzinfo=UTC)  # a Tuesday
ZONE = ZoneInfo("Asia/Shanghai")


def parse(*texts: str) -> ParsedRequest:
    """Parse a window of alternating speakers that ends with the user."""
    roles = (Role.USER, Role.ASSISTANT)
    *earlier, request = texts
    messages = [
        ConversationMessage(roles[(len(texts) - n) % 2], text) for n, text in enumerate(earlier, 1)
    ]
    return parse_request(request, messages, NOW, ZONE, language_of(request))


REFERENCES: tuple[tuple[str, list[str]], ...] = (
    ("上次方案", ["past"]),
    ("那个东西", ["thing"]),
    ("继续", ["near"]),
    ("像上次那样处理", ["alike", "past"]),
    ("按照我说过的来", ["alike", "said"]),
    ("你给我的清单", ["said"]),
    ("老样子", ["alike"]),
    ("我叫什么", []),
    ("the one you recommended", ["thing", "said"]),
    ("as before", ["alike", "past"]),
    ("pick up where we left off", ["near"]),
    ("what was that restaurant called", ["thing"]),
    ("write a function that sorts", []),
    ("how do you say hello", []),
    ("what did you tell me", ["said"]),
)


def test_references() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, kinds = case
        assert [reference.kind for reference in parse(text).references] == kinds

    check_each(REFERENCES, check)


CONTENT_WORDS: tuple[tuple[str, set[str]], ...] = (
    ("上次方案", {"方案"}),
    ("按照我之前的数据库配置来", {"数据库", "配置"}),
    ("我之前让你做的那个东西", set()),
    ("请问你还记得上周三说的那个方案吗", {"方案"}),
    ("do it like last time", set()),
    ("please remind me what we said about the tiles", {"tiles"}),
    ("What is Nora's blood group?", {"Nora", "blood", "group"}),
)


def test_content_words() -> None:
    def check(case: tuple[str, set[str]]) -> None:
        text, words = case
        request = parse(text)
        assert set(request.words) == words
        assert request.is_bare == (not words)

    check_each(CONTENT_WORDS, check)


EXACT_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("what is in /etc/hub/hub.yaml?", ("/etc/hub/hub.yaml",)),
    ("订单 A1024-77 到哪了", ("A1024-77",)),
    ("是不是说过“宁缺毋滥”", ("宁缺毋滥",)),
    ("who wrote to ada@example.com", ("ada@example.com",)),
    ("《长夜》是谁推荐的", ("长夜",)),
    ("upgrade to v2.3.1 failed", ("v2.3.1",)),
    ("端口 9443 是谁用的", ("9443",)),
    ("what did I do in 2024?", ()),
    ("I'm sure it's Ben's", ()),
)


def test_exact_terms() -> None:
    def check(case: tuple[str, tuple[str, ...]]) -> None:
        text, exact = case
        assert parse(text).exact_terms == exact

    check_each(EXACT_WORDS, check)


TIMES_OF_SPEECH: tuple[tuple[str, str | None], ...] = (
    ("上周三说的方案", "上周三"),
    ("我昨天跟你说的事", "昨天"),
    ("上周三我们讨论了什么", "上周三"),
    ("what did I say last Wednesday about the trip in May", "last Wednesday"),
    ("the plan you suggested on Monday", "on Monday"),
    ("Last week you told me about a book", "Last week"),
    ("the trip in May", None),
    ("五月的旅行", None),
    ("最近说的事", None),
    ("in May, who said he would come?", None),
)


def test_times_of_speech_and_of_events_are_distinguished() -> None:
    def check(case: tuple[str, str | None]) -> None:
        text, expected = case
        span = parse(text).times.message_span
        assert (span and span.text) == expected

    check_each(TIMES_OF_SPEECH, check)


def test_earlier_messages_are_latest_first() -> None:
    request = parse("我想养一只鹦鹉", "好的", "或者金鱼", "都可以", "那个呢")
    assert request.is_bare
    assert request.context_words[0] == "金鱼"
    assert "鹦鹉" in request.context_words


_ANY = st.text(max_size=200) | st.text(
    alphabet="上次之前那个说的我你按照来年月日 that the last time you said"
    "“”'\"/._-0123456789?？\n{}<>`#",
    max_size=200,
)


@given(_ANY, _ANY)
def test_any_text_can_be_parsed(text: str, earlier: str) -> None:
    request = parse(earlier, text)
    assert not request.is_bare or request.references
    assert needs_recall(text) in (True, False)
