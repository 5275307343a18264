"""Speakers named in a question, and the question rewritten in the first person."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.search.ranking.features import find_speakers, to_first_person

from ..cases import check_each, read_rows

SPEAKERS = ["Ann", "Bob", "leimingxuan", "张伟", "A", "李"]


def to_first_person_of_speakers(question: str, speakers: list[str] = SPEAKERS) -> str:
    return to_first_person(question, list(find_speakers(question, speakers).values()))


NAMED_SPEAKERS: list[tuple[str, dict[str, str]]] = read_rows("people", "named")


FULL_NAMES = [
    *("Ross Geller", "Monica Geller", "Will Smith", "May-Lin Chen", "Dr. Green", "Mr. Heckles"),
    *("User1", "agent_2", "Speaker 1", "Speaker 2", "陈建国（同事）", "李明 经理"),
]
PARTLY_NAMED: list[tuple[str, dict[str, str]]] = read_rows("people", "partly named")


def test_speakers_are_found_by_whole_and_first_names_as_written() -> None:
    def check(case: tuple[str, dict[str, str]]) -> None:
        question, expected = case
        speakers = SPEAKERS if case in NAMED_SPEAKERS else FULL_NAMES
        assert find_speakers(question, speakers) == expected

    check_each([*NAMED_SPEAKERS, *PARTLY_NAMED], check)


def test_first_name_of_another_whole_name_is_not_found() -> None:
    speakers = ["Ross Geller", "Ross Martin"]
    assert find_speakers("Did Ross Martin call?", speakers) == {"Ross Martin": "Ross Martin"}
    assert find_speakers("Did Ross call?", speakers) == dict.fromkeys(speakers, "Ross")


def test_speaker_with_a_number_is_rewritten_to_first_person() -> None:
    for question in ("What did Speaker 2 say?", "What did speaker_2 say?"):
        assert to_first_person_of_speakers(question, FULL_NAMES) == "What did I say?"


@pytest.mark.parametrize("question", ["Is A better than B?", "李子熟了吗？", "a 李"])
def test_name_of_one_character_is_ignored(question: str) -> None:
    assert find_speakers(question, SPEAKERS) == {}


def test_query_is_rewritten_to_first_person() -> None:
    def rewrite(case: tuple[str, str]) -> None:
        question, expected = case
        assert to_first_person_of_speakers(question) == expected

    check_each(read_rows("people", "first person"), rewrite)


@pytest.mark.parametrize(
    "question", ["Did Annabel call?", "the Bobsleigh of Bobby", "Joanne, Hannah and Ann_2"]
)
def test_words_that_contain_a_name_are_unchanged(question: str) -> None:
    assert to_first_person_of_speakers(question) == question
    assert to_first_person(question, ["Ann", "Bob"]) == question


def test_longer_name_is_rewritten_first() -> None:
    assert to_first_person("Did Ann Lee call?", ["Ann", "Ann Lee"]) == "Did I call?"
    assert to_first_person("欧阳小明在哪？", ["小明", "欧阳小明"]) == "我在哪？"


TEXT = st.text(max_size=60) | st.lists(
    st.sampled_from(["Ann", "ann's", "did", "张伟", "的", " ", "(", "\\", "?", "Bob-", "’s", "é"]),
    max_size=12,
).map("".join)


@given(TEXT, st.lists(st.text(max_size=12) | TEXT, max_size=5))
def test_speakers_of_arbitrary_text_occur_in_it(question: str, speakers: list[str]) -> None:
    spellings = find_speakers(question, speakers)
    assert set(spellings) <= set(speakers)
    assert isinstance(to_first_person(question, list(spellings.values())), str)
    for words in spellings.values():
        assert all(word in question for word in words.split())


@given(TEXT)
def test_query_without_names_is_unchanged(question: str) -> None:
    assert to_first_person(question, []) == question
    assert find_speakers(question, []) == {}
    assert to_first_person_of_speakers(question, ["Zeppelina", "诸葛无名"]) == question
