"""`--small-stores`: sessions as users of their own, with questions they can and cannot answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.evaluation.corpus import Corpus, check_labels, make_small_stores, read_corpus
from memrecall.evaluation.questions import Question, QuestionSet, read_questions
from memrecall.importers.jsonl import read_entry

from .conftest import EvaluationCli
from .samples import CORPUS, Json, message, read_lines, write_lines

TOPICS = ("kayak", "violin", "orchard", "telescope")
PEOPLE = ("Ann Lee", "Bob", "Cara", "Dan")


def session(topic: str, speaker: str, size: int = 5) -> list[Json]:
    """Return the messages of a session named after its topic."""
    return [
        message("lin", f"{topic}{n}", f"2025-01-{n % 28 + 1:02}", f"the {topic} has part {n}",
                speaker=speaker, session_id=topic)
        for n in range(size)
    ]  # fmt: skip


def ask(topic: str, query: str, *evidence: str, **fields: Any) -> Json:
    """Return a question, by default about the first message of a session."""
    keys = list(evidence) or [f"{topic}0"]
    return {
        "query_id": f"{topic}-{query}", "user_id": "lin", "query": query, "evidence": keys,
        "category": "fact", **fields,
    }  # fmt: skip


ROWS = [row for pair in zip(TOPICS, PEOPLE, strict=True) for row in session(*pair)]
QUESTIONS = [
    ask(topic, f"{kind} {person.split()[0]}'s {topic}")
    for topic, person in zip(TOPICS, PEOPLE, strict=True)
    for kind in ("Where is", "Tell me about", "Who sold")
]


def make(
    tmp_path: Path, rows: list[Json], questions: list[Json], count: int = 10, seed: int = 0
) -> tuple[Corpus, QuestionSet]:
    corpus = read_corpus(write_lines(tmp_path / "corpus.jsonl", rows), read_entry)
    question_set = read_questions(write_lines(tmp_path / "queries.jsonl", questions))
    return make_small_stores(corpus, question_set, count, seed)


def split(question_set: QuestionSet) -> tuple[list[Question], list[Question]]:
    """Return the answerable and the unanswerable questions."""
    questions = question_set.questions
    return [q for q in questions if q.answerable], [q for q in questions if not q.answerable]


def test_session_becomes_user_with_own_and_foreign_questions(tmp_path: Path) -> None:
    corpus, question_set = make(tmp_path, ROWS, QUESTIONS)
    assert sorted(corpus.keys) == ["small-1", "small-2", "small-3", "small-4"]
    assert {len(keys) for keys in corpus.keys.values()} == {5}
    own, foreign = split(question_set)
    assert len(own) == len(foreign) == 8
    check_labels(question_set, corpus)  # the evidence is in the new store
    for question in own:
        assert question.category == "fact"
        assert question.evidence[0].rstrip("0") in question.query
    for question in foreign:
        assert (question.evidence, question.category) == ((), "unanswerable")
        topic = next(iter(corpus.keys[question.user_id])).rstrip("0")
        assert topic not in question.query


def test_names_are_exchanged_as_whole_words_in_one_pass(tmp_path: Path) -> None:
    rows = [
        *session("kayak", "Ann"),
        *session("violin", "Bob"),
        message("lin", "k9", "2025-01-09", "me too", speaker="Joe", session_id="kayak"),
        message("lin", "v9", "2025-01-09", "me too", speaker="Kim", session_id="violin"),
    ]
    questions = [
        ask("kayak", "Does Ann paddle with Joe to Annville, and Ann's dog?"),
        ask("violin", "Does Bob play?"),
    ]
    _, question_set = make(tmp_path, rows, questions)
    foreign = {question.query for question in split(question_set)[1]}
    assert "Does Bob paddle with Kim to Annville, and Bob's dog?" in foreign


def test_chinese_names_are_exchanged(tmp_path: Path) -> None:
    rows = [*session("甲", "陈建国"), *session("乙", "林小满")]
    questions = [ask("甲", "陈建国1月买了什么？"), ask("乙", "林小满去了哪里？")]
    _, question_set = make(tmp_path, rows, questions)
    foreign = {question.query for question in split(question_set)[1]}
    assert foreign == {"林小满1月买了什么？", "陈建国去了哪里？"}


def test_foreign_questions_have_language_of_store(tmp_path: Path) -> None:
    rows, questions = list(ROWS), list(QUESTIONS)
    for topic in ("甲一", "乙二"):
        rows += [
            message("lin", f"{topic}{n}", "2025-02-01", f"{topic}第{n}条", session_id=topic)
            for n in range(5)
        ]
        questions.append(ask(topic, f"{topic}是什么？"))
    corpus, question_set = make(tmp_path, rows, questions)
    chinese = {user for user, keys in corpus.keys.items() if not min(keys).isascii()}
    assert len(chinese) == 2
    for question in question_set.questions:
        assert (question.user_id in chinese) == (not question.query.isascii())


def test_seed_decides_stores_and_questions(tmp_path: Path) -> None:
    first, again, other = (make(tmp_path, ROWS, QUESTIONS, 2, seed) for seed in (1, 1, 2))
    assert first[1].lines == again[1].lines
    assert first[0].sha256 == again[0].sha256
    assert first[1].sha256 != other[1].sha256
    assert first[0].sha256 != other[0].sha256
    assert len(first[0].keys) == 2


def test_only_fitting_sessions_and_questions_are_used(tmp_path: Path) -> None:
    rows = [*ROWS, *session("short", "Eve", 4), *session("long", "Fay", 41)]
    questions = [
        *QUESTIONS[:6],
        ask("short", "Where is the short one?"),
        ask("long", "Where is the long one?"),
        ask("orchard", "What do both have?", "orchard1", "telescope1"),
        ask("orchard", "What does Cara fear?", category="adversarial"),
        ask("orchard", "Never said?", category="") | {"evidence": []},
    ]
    corpus, question_set = make(tmp_path, rows, questions)
    assert len(corpus.keys) == 2
    assert not any("both" in q.query or "Cara" in q.query for q in question_set.questions)


def test_question_of_both_stores_is_not_foreign(tmp_path: Path) -> None:
    questions = [ask(topic, "Where is it?", query_id=topic) for topic in TOPICS[:2]]
    _, question_set = make(tmp_path, ROWS, questions)
    assert [q.answerable for q in question_set.questions] == [True, True]


def test_memory_follows_its_source_messages(tmp_path: Path) -> None:
    memory = {"user_id": "lin", "content": "a kayak", "memory_type": "fact"}
    rows = [
        *ROWS,
        {**memory, "memory_key": "own", "source_message_ids": ["kayak0", "kayak1"]},
        {**memory, "memory_key": "mixed", "source_message_ids": ["kayak0", "violin1"]},
        {**memory, "memory_key": "alone"},
    ]
    corpus, question_set = make(tmp_path, rows, [*QUESTIONS, ask("kayak", "Own?", "own")])
    assert [item.memory.memory_key for _, item in corpus.memories] == ["own"]
    check_labels(question_set, corpus)


def test_time_of_asking_does_not_hide_the_store(tmp_path: Path) -> None:
    questions = [
        ask("kayak", "Where is the kayak?", as_of="2024-06", session_id="later"),
        ask("violin", "Where is the violin?", as_of="2026-06"),
    ]
    own, foreign = split(make(tmp_path, ROWS, questions)[1])
    assert {q.query: q.as_of for q in own} == {
        "Where is the kayak?": "2024-06",
        "Where is the violin?": "2026-06",
    }
    assert {q.query: q.as_of for q in foreign} == {
        "Where is the kayak?": None,
        "Where is the violin?": "2026-06",
    }
    assert {q.session_id for q in (*own, *foreign)} == {None}


def test_unsuitable_sets_are_rejected(tmp_path: Path) -> None:
    without_sessions = [{**row, "session_id": None} for row in ROWS]
    with pytest.raises(InvalidArgument, match="has no sessions"):
        make(tmp_path, without_sessions, QUESTIONS)
    with pytest.raises(InvalidArgument, match="questions about 1 sessions of 5 to 40 messages"):
        make(tmp_path, ROWS, QUESTIONS[:3])


@pytest.fixture
def sessions(evaluation: EvaluationCli) -> EvaluationCli:
    write_lines(evaluation.corpus, ROWS)
    write_lines(evaluation.queries, QUESTIONS)
    return evaluation


@pytest.mark.parametrize("mode", ["search", "recall"])
def test_small_stores_run(sessions: EvaluationCli, mode: str) -> None:
    outcome = sessions.run("run", mode, "--small-stores", 3, "--seed", 7)
    assert outcome.code == 0, outcome.err
    plan, counts = outcome.json["plan"], outcome.json["counts"]
    assert (plan["small_stores"], plan["seed"]) == (3, 7)
    assert (counts["users"], counts["messages"], counts["unanswerable"]) == (3, 15, 6)
    assert outcome.json["metrics"]["overall"]["auroc"]["questions"] == 12
    questions = read_lines(sessions.file("run", "queries.jsonl"))
    assert {row["user_id"] for row in questions} == {"small-1", "small-2", "small-3"}
    assert sessions.run("run", mode, "--small-stores", 3, "--seed", 7).json["asked"] == 0
    other = sessions.run("run", mode, "--small-stores", 3, "--seed", 8)
    assert (other.code, "seed = 7, not 8" in other.err) == (2, True)
    sessions.run("other", mode, "--small-stores", 3, "--seed", 8)
    compared = sessions.call("compare", "run", "other")
    assert (compared.code, "have different questions" in compared.err) == (2, True)
    files = ("--corpus", sessions.corpus, "--queries", sessions.queries, "--mode", mode)
    text = sessions.call("run", *files, "--small-stores", 9, "--out", sessions.folder / "nine").out
    assert "16 questions, 8 without an answer" in text
    assert "4 small stores with 20 messages, of 9 requested" in text


def test_small_store_options_are_checked(sessions: EvaluationCli) -> None:
    assert "--seed requires --small-stores" in sessions.run("run", "search", "--seed", 2).err
    both = ("--small-stores", 3, "--max-questions", 2)
    assert "are mutually exclusive" in sessions.run("run", "search", *both).err
    assert sessions.run("run", "search", "--small-stores", 1).code == 2
    write_lines(sessions.corpus, [{**row, "session_id": None} for row in ROWS])
    outcome = sessions.run("run", "search", "--small-stores", 3)
    assert (outcome.code, "has no sessions" in outcome.err) == (2, True)
    assert not (sessions.folder / "run").exists()


def test_older_run_loads_and_is_summarized_without_store_sizes(evaluation: EvaluationCli) -> None:
    write_lines(evaluation.corpus, CORPUS)
    evaluation.run("run")
    file = evaluation.file("run", "summary.json")
    state = json.loads(file.read_bytes())
    for name in ("small_stores", "seed"):
        del state["plan"][name]
    del state["store_sizes"]
    del state["metrics"]["slices"]
    file.write_text(json.dumps(state), "utf-8")
    folder = evaluation.folder
    page = folder / "page.html"
    assert evaluation.shell("eval", "report", folder / "run", "--out", page).code == 0
    assert evaluation.shell("eval", "compare", folder / "run", folder / "run").code == 0
    repeated = evaluation.run("run")
    assert repeated.json["asked"] == 0
    assert set(repeated.json["metrics"]["slices"]) == {"category", "kind", "language"}
    assert repeated.json["store_sizes"] == {"lin": 4, "maya": 5}
