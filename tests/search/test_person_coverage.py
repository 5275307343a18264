"""The share of a query's terms that the hits cover for each person."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.search.ranking.lexical import query_terms
from memrecall.search.ranking.people import coverage_by_person
from memrecall.search.results import Hit, ScoreParts

SCORE_PARTS = ScoreParts(0, 0, 0, 0, 0, 0, 0, 0, 0)


def make_hit(speaker: str | None, content: str, role: str | None = "user") -> Hit:
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
        why=SCORE_PARTS,
    )


def coverage_of(question: str, *hits: Hit) -> dict[str, float]:
    return coverage_by_person(question, query_terms(question), hits)


@pytest.mark.parametrize(
    ("question", "first_person", "second_person", "ada", "ben"),
    [
        ("Which chess tournament did Ada win?", "I won the chess tournament!", "Nice.", 1, 0),
        ("Which chess tournament did Ada win?", "Did you win the chess tournament?", "Yes", 0, 1),
        ("Ada什么时候去杭州的？", "我上周去了杭州。", "真好", 1, 0),
        ("Ada什么时候去杭州的？", "你去杭州玩得好吗？", "很好", 0, 1),
    ],
)
def test_first_person_counts_for_speaker_second_for_listener(
    question: str, first_person: str, second_person: str, ada: int, ben: int
) -> None:
    coverage = coverage_of(
        question, make_hit("Ada", first_person), make_hit("Ben", second_person, "assistant")
    )
    assert (coverage["Ada"] > coverage["Ben"], coverage["Ben"] > coverage["Ada"]) == (
        bool(ada),
        bool(ben),
    )
    swapped = coverage_of(
        question, make_hit("Ben", first_person), make_hit("Ada", second_person, "assistant")
    )
    assert (swapped["Ben"], swapped["Ada"]) == (coverage["Ada"], coverage["Ben"])


def test_each_sentence_is_attributed_to_its_person() -> None:
    coverage = coverage_of(
        "What did Ada paint?",
        make_hit("Ada", "How is your painting? I went swimming."),
        make_hit("Ben", "Ok."),
    )
    assert coverage["Ben"] > coverage["Ada"]


def test_rare_terms_weigh_more() -> None:
    hits = (make_hit("Ada", "I bought a bowl."), make_hit("Ben", "I bought a telescope."))
    coverage = coverage_by_person(
        "Did Ada buy a telescope?", {("telescop",): 5.0, ("bought",): 1.0}, hits
    )
    assert coverage == {"Ada": pytest.approx(1 / 6, abs=0.01), "Ben": 1.0}


@pytest.mark.parametrize("question", ["Where do we meet?", "Did Ada and Ben meet?"])
def test_coverage_needs_exactly_one_named_person(question: str) -> None:
    assert (
        coverage_of(question, make_hit("Ada", "We meet at noon."), make_hit("Ben", "I meet you."))
        == {}
    )


def test_notes_and_unnamed_speakers_are_ignored() -> None:
    hits = (make_hit(None, "I met Ada."), make_hit("Ada", "calendar: meet", role=None))
    assert coverage_of("Whom did Ada meet?", *hits) == {}


SENTENCES = st.lists(
    st.sampled_from(["I met you.", "你好吗？", "We sail!", "the sea", "我想你", "\n", "???"]),
    max_size=6,
)


@given(st.lists(st.tuples(st.sampled_from(["Ada", "Ben", "陆嘉"]), SENTENCES), max_size=6))
def test_coverage_is_between_0_and_1(turns: list[tuple[str, list[str]]]) -> None:
    hits = [make_hit(speaker, " ".join(parts)) for speaker, parts in turns]
    coverage = coverage_of("Did Ada sail to the sea and meet 我?", *hits)
    assert all(0 <= share <= 1 for share in coverage.values())
    assert not coverage or set(coverage) == {speaker for speaker, _ in turns}
