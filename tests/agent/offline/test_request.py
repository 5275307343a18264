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
from tests.cases import check_each, read_rows

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


def test_references() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, kinds = case
        assert [reference.kind for reference in parse(text).references] == kinds

    check_each(read_rows("requests", "references"), check)


def test_content_words() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, words = case
        request = parse(text)
        assert sorted(set(request.words)) == words
        assert request.is_bare == (not words)

    check_each(read_rows("requests", "content words"), check)


def test_exact_terms() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, exact = case
        assert list(parse(text).exact_terms) == exact

    check_each(read_rows("requests", "exact terms"), check)


def test_times_of_speech_and_of_events_are_distinguished() -> None:
    def check(case: tuple[str, str | None]) -> None:
        text, expected = case
        span = parse(text).times.message_span
        assert (span and span.text) == expected

    check_each(read_rows("requests", "times of speech"), check)


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
