"""Make small stores from an evaluation set: sessions as users, with questions of other sessions.

    python benchmarks/small_stores.py FOLDER OUT --stores 80 --seed 0

FOLDER and OUT have corpus.jsonl and queries.jsonl (docs/evaluation.md). A session of 5 to 40
messages becomes a user with up to two of its own questions and up to two of another session, of
the same language if there is one. Those cannot be answered: they have no evidence and the category
`unanswerable`, and name this store's speakers, so that a name does not give them away. The same
seed gives the same stores.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

if not __package__:  # run as a file, not as a module
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from memrecall.evaluation.questions import Question
from memrecall.search.ranking.people import find_speakers
from memrecall.text.language import language_of, language_of_most
from memrecall.types import parse_time

SIZES = range(5, 41)  # messages of a session that can become a store
QUESTIONS_EACH = 2  # of its own and of another store, at most

Row = dict[str, Any]  # a line of a file


@dataclass(slots=True, eq=False)
class Session:
    """The rows of one session, and the questions that it alone answers."""

    messages: list[Row] = field(default_factory=list)
    memories: list[Row] = field(default_factory=list)
    questions: list[Row] = field(default_factory=list)

    @property
    def language(self) -> str:
        """The language of most messages."""
        return language_of_most(row["content"] for row in self.messages)

    @property
    def speakers(self) -> list[str]:
        """The names of the speakers, users first, so that users are renamed to users."""
        rows = sorted(self.messages, key=lambda row: row["role"] != "user")
        return list(dict.fromkeys(row["speaker"] for row in rows if row.get("speaker")))


def split_sessions(corpus: Iterable[Row], questions: Iterable[Row]) -> list[Session]:
    """Return the sessions with the memories and questions that belong to a single one."""
    sessions: dict[tuple[str, str], Session] = defaultdict(Session)
    homes: dict[tuple[str, str], str] = {}  # session id by user and key
    memories: list[Row] = []
    for row in corpus:
        if row.get("memory_key"):
            memories.append(row)
        elif row.get("session_id"):
            sessions[row["user_id"], row["session_id"]].messages.append(row)
            homes[row["user_id"], row["message_id"]] = row["session_id"]
    for row in memories:
        if home := common_home(homes, row["user_id"], row.get("source_message_ids", ())):
            sessions[row["user_id"], home].memories.append(row)
            homes[row["user_id"], row["memory_key"]] = home
    for row in questions:
        home = common_home(homes, row["user_id"], row["evidence"])
        if home and Question.model_validate(row).answerable:
            sessions[row["user_id"], home].questions.append(row)
    return list(sessions.values())


def common_home(
    homes: Mapping[tuple[str, str], str], user: str, keys: Collection[str]
) -> str | None:
    """Return the session that all keys of a user belong to, if there is one."""
    found = {homes.get((user, key)) for key in keys}
    return found.pop() if len(found) == 1 else None


def other_stores(stores: Sequence[Session]) -> Iterator[Session]:
    """Yield another store for each: of its language if possible, which would be a hint."""
    rings: dict[str, list[Session]] = defaultdict(list)
    for store in stores:
        rings[store.language].append(store)
    for store in stores:
        same = rings[store.language]
        ring = same if len(same) > 1 else stores
        yield ring[(ring.index(store) + len(ring) // 2) % len(ring)]


def choose_questions(store: Session, other: Session, user: str, random: Random) -> Iterator[Row]:
    """Yield questions that a store answers, and questions of another store."""
    own_texts = {row["query"] for row in store.questions}
    others = [row for row in other.questions if row["query"] not in own_texts]
    latest = max(parse_time(row["ts"], "ts") for row in store.messages)
    for rows, is_own in ((store.questions, True), (others, False)):
        for row in random.sample(rows, min(QUESTIONS_EACH, len(rows))):
            moved = {**row, "query_id": f"{user}-{row['query_id']}", "user_id": user}
            moved.pop("session_id", None)
            if not is_own:
                moved["query"] = rename(row["query"], other.speakers, store.speakers)
                moved |= {"evidence": [], "category": "unanswerable"}
                horizon = Question.model_validate(row).horizon
                if horizon is not None and horizon < latest:  # it would hide the store
                    del moved["as_of"]
            yield moved


def rename(query: str, theirs: Sequence[str], ours: Sequence[str]) -> str:
    """Return a query with the names of other speakers replaced by ours, all in one pass."""
    known = find_speakers(query, ours)
    strangers = find_speakers(query, [name for name in theirs if name not in ours])
    successors = cycle([name for name in ours if name not in known] or ours)
    names = {}
    for (speaker, words), new in zip(strangers.items(), successors, strict=False):
        is_first_name = len(words.split()) < len(speaker.split())
        names[words] = new.split()[0] if is_first_name else new
    if not names:
        return query
    pattern = "|".join(map(name_pattern, sorted(names, key=len, reverse=True)))
    return re.sub(pattern, lambda match: names[match.group()], query)


def name_pattern(name: str) -> str:
    """Return the pattern of a name as a whole word; Chinese has no spaces between words."""
    if language_of(name) == "zh":
        return re.escape(name)
    letter = r"[^\W\u4e00-\u9fff]"
    return f"(?<!{letter}){re.escape(name)}(?!{letter})"


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def main() -> None:
    """Make the stores of a set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stores", type=int, default=80, help="the most stores")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = Random(options.seed)
    corpus, queries = (read_rows(options.folder / f"{n}.jsonl") for n in ("corpus", "queries"))
    sessions = split_sessions(corpus, queries)
    stores = [each for each in sessions if len(each.messages) in SIZES and each.questions]
    random.shuffle(stores)
    del stores[options.stores :]
    rows, questions = list[Row](), list[Row]()
    for at, (store, other) in enumerate(zip(stores, other_stores(stores), strict=True), 1):
        user = f"small-{at}"
        rows += ({**row, "user_id": user} for row in (*store.messages, *store.memories))
        questions += choose_questions(store, other, user, random)
    options.out.mkdir(parents=True, exist_ok=True)
    write_rows(options.out / "corpus.jsonl", rows)
    write_rows(options.out / "queries.jsonl", questions)
    print(f"{len(stores)} stores, {len(rows):,} messages, {len(questions)} questions")


if __name__ == "__main__":
    main()
