"""Later statements come before those that they replace."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from memrecall.search.results import Hit, ScoreParts
from memrecall.search.updates import put_updates_first, replacements_first

MARCH = datetime(2026, 3, 5, 12, tzinfo=UTC)
WHY = ScoreParts(0, 0, 0, 0, 0, 0, 0, 0, 0)
JOYCE = "My neighbour Joyce has the spare key."
OMAR = "Joyce moved out, Omar keeps my spare key now."


def hit(key: str, content: str, days: float = 0, score: float = 0.9, speaker: str = "Ann") -> Hit:
    return Hit(
        key=key,
        kind="message",
        score=score,
        ts=MARCH + timedelta(days=days),
        role="user",
        speaker=speaker,
        content=content,
        session_id="s",
        memory_type="message",
        probability=score / 2,
        why=WHY,
    )


def keys(hits: list[Hit]) -> list[str]:
    return [hit.key for hit in hits]


def test_change_comes_before_the_statement_that_it_replaces() -> None:
    hits = [hit("joyce", JOYCE), hit("omar", OMAR, 40, 0.7), hit("dog", "The dog is fine.", 2, 0.3)]
    first, second, third = put_updates_first("Who has my spare key?", hits)
    assert (first.key, second.key, third.key) == ("omar", "joyce", "dog")
    assert first.replaces == ("joyce",)
    assert (first.score, first.probability) == (0.9, 0.45)  # no lower than the one below it
    assert second.replaces == ()


def test_change_in_chinese_comes_first() -> None:
    hits = [hit("old", "每周三晚上七点练瑜伽。"), hit("new", "瑜伽改成周五下午了。", 30, 0.6)]
    assert keys(put_updates_first("我哪天练瑜伽？", hits)) == ["new", "old"]


def test_conversations_keep_the_order() -> None:
    hits = [hit("joyce", JOYCE), hit("omar", OMAR, 40, 0.7)]
    query = "I am going away.\nWho has your key?\nMy neighbour."
    assert keys(put_updates_first(query, hits)) == ["joyce", "omar"]


def test_questions_about_the_past_keep_the_order() -> None:
    hits = [hit("joyce", JOYCE), hit("omar", OMAR, 40, 0.7)]
    for query in (
        "Who had my spare key originally?",
        "When did Joyce get the key?",
        "当初钥匙在谁那儿",
    ):
        assert keys(put_updates_first(query, hits)) == ["joyce", "omar"], query


def test_statements_that_replace_nothing_stay() -> None:
    first = hit("joyce", JOYCE)
    for other in (
        hit("later", "Omar waters the plants now.", 40, 0.7),  # about something else
        hit("asked", "Does Joyce keep my spare key now?", 40, 0.7),  # a question
        hit("soon", OMAR, 0.01, 0.7),  # the same conversation
        hit("bob", OMAR, 40, 0.7, "Bob"),  # somebody else's key
        hit("earlier", OMAR, -40, 0.7),
        hit("unlikely", OMAR, 40, 0.05),
    ):
        ordered = put_updates_first("Who has my spare key?", [first, other])
        assert keys(ordered) == ["joyce", other.key], other.key
        assert ordered[1].replaces == ()


def test_current_state_prefers_the_latest_statement_without_a_word_of_change() -> None:
    hits = [
        hit("old", "The wifi password is lychee88."),
        hit("new", "wifi password: plum21", 9, 0.6),
    ]
    assert keys(put_updates_first("what is the wifi password now?", hits)) == ["new", "old"]
    assert keys(put_updates_first("what is the wifi password?", hits)) == ["old", "new"]


PAIRS = st.lists(st.integers(0, 9), unique=True, max_size=10).flatmap(
    lambda items: st.tuples(
        st.just(items),
        st.dictionaries(st.sampled_from(items), st.integers(0, 9), max_size=1)
        if items
        else st.just({}),
    )
)


@given(PAIRS)
def test_replacements_keep_all_items(case: tuple[list[int], dict[int, int]]) -> None:
    items, replaced = case
    ordered = replacements_first(
        items, str, lambda item: [str(replaced[item])] if item in replaced else []
    )
    assert sorted(ordered) == sorted(items)
    for later, earlier in replaced.items():
        if earlier in items and earlier != later:
            assert ordered.index(later) < ordered.index(earlier)
    others = [item for item in items if item not in replaced]
    assert [item for item in ordered if item not in replaced] == others
