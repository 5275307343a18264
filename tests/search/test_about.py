"""Whom the found words tell of."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.search.ranking.lexical import query_terms
from memrecall.search.ranking.people import coverage_by_person
from memrecall.search.results import Hit, ScoreParts

WHY = ScoreParts(0, 0, 0, 0, 0, 0, 0, 0)


def said(speaker: str | None, content: str, role: str | None = "user") -> Hit:
    return Hit(
        key=f"{speaker}:{content}",
        kind="message",
        score=0.5,
        ts=datetime(2026, 1, 1, tzinfo=UTC),
        role=role,
        speaker=speaker,
        content=content,
        session_id=None,
        memory_type="message",
        why=WHY,
    )


def shares(question: str, *hits: Hit) -> dict[str, float]:
    return coverage_by_person(question, query_terms(question), hits)


@pytest.mark.parametrize(
    ("question", "mine", "yours", "ada", "ben"),
    [
        ("Which chess tournament did Ada win?", "I won the chess tournament!", "Nice.", 1, 0),
        ("Which chess tournament did Ada win?", "Did you win the chess tournament?", "Yes", 0, 1),
        ("Ada什么时候去杭州的？", "我上周去了杭州。", "真好", 1, 0),
        ("Ada什么时候去杭州的？", "你去杭州玩得好吗？", "很好", 0, 1),
    ],
)
def test_i_is_the_speaker_and_you_the_other(
    question: str, mine: str, yours: str, ada: int, ben: int
) -> None:
    told = shares(question, said("Ada", mine), said("Ben", yours, "assistant"))
    assert (told["Ada"] > told["Ben"], told["Ben"] > told["Ada"]) == (bool(ada), bool(ben))
    turned = shares(question, said("Ben", mine), said("Ada", yours, "assistant"))
    assert (turned["Ben"], turned["Ada"]) == (told["Ada"], told["Ben"])


def test_each_sentence_is_told_of_its_own_person() -> None:
    told = shares(
        "What did Ada paint?",
        said("Ada", "How is your painting? I went swimming."),
        said("Ben", "Ok."),
    )
    assert told["Ben"] > told["Ada"]


def test_rare_words_count_more() -> None:
    hits = (said("Ada", "I bought a bowl."), said("Ben", "I bought a telescope."))
    told = coverage_by_person(
        "Did Ada buy a telescope?", {("telescop",): 5.0, ("bought",): 1.0}, hits
    )
    assert told == {"Ada": pytest.approx(1 / 6, abs=0.01), "Ben": 1.0}


@pytest.mark.parametrize("question", ["Where do we meet?", "Did Ada and Ben meet?"])
def test_nobody_or_everybody_is_asked_about(question: str) -> None:
    assert shares(question, said("Ada", "We meet at noon."), said("Ben", "I meet you.")) == {}


def test_notes_and_nameless_people_tell_of_nobody() -> None:
    hits = (said(None, "I met Ada."), said("Ada", "calendar: meet", role=None))
    assert shares("Whom did Ada meet?", *hits) == {}


SENTENCES = st.lists(
    st.sampled_from(["I met you.", "你好吗？", "We sail!", "the sea", "我想你", "\n", "???"]),
    max_size=6,
)


@given(st.lists(st.tuples(st.sampled_from(["Ada", "Ben", "陆嘉"]), SENTENCES), max_size=6))
def test_shares_lie_between_0_and_1(talk: list[tuple[str, list[str]]]) -> None:
    hits = [said(who, " ".join(parts)) for who, parts in talk]
    told = shares("Did Ada sail to the sea and meet 我?", *hits)
    assert all(0 <= share <= 1 for share in told.values())
    assert not told or set(told) == {who for who, _ in talk}
