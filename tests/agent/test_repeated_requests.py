"""Stored messages that only repeat a request are no evidence for it."""

from memrecall.agent.tools.search import compare_texts


def test_same_question_to_a_member_of_a_group_repeats_the_request() -> None:
    texts = [
        "which city does Kate live in now?",
        "@Food which city does Kate live in now?",
        "@Food @Travel which city does Kate live in now?",
        "@Travel Kate lives in Porto now.",
    ]
    assert compare_texts("@Travel which city does Kate live in now?", texts) == [
        *(True, True, True),
        False,
    ]
    assert compare_texts("which city does Kate live in now?", texts[1:2]) == [True]


def test_text_of_addresses_alone_repeats_no_request() -> None:
    assert compare_texts("where is it?", ["@Travel @Food ", "@Travel"]) == [False, False]
