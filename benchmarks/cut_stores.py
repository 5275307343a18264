"""Small stores, cut from the histories of an evaluation set: one for each question.

Authors write histories of similar sizes; users begin with three lines. A cut keeps the evidence,
mostly with the line before it, and a few other lines. Of some questions the evidence is left out,
and half of those are asked about a stranger. Some questions follow another one and its answer.
"""

import json
import random
from pathlib import Path
from typing import Any

CUT_NAME = "_cut"
"""What the name of a cut set ends with."""

_SEED = 11
_MOST_EVIDENCE, _MEAN_LINES = 4, 10
_OTHERS = (1, 2, 3, 4, 6, 8, 12, 18, 25)  # lines
_UNANSWERED, _STRANGE, _WITH_LINE_BEFORE, _FOLLOWING = 0.18, 0.5, 0.8, 0.25  # shares

_Row = dict[str, Any]


def has_histories(folder: Path) -> bool:
    """Return whether the stores of a set are large enough to be cut."""
    users = [row["user_id"] for row in _read(folder / "corpus.jsonl")]
    return len(users) > _MEAN_LINES * len(set(users))


def cut_stores(folder: Path, work: Path) -> Path:
    """Write the small stores of a set and return their folder."""
    chance = random.Random(_SEED)
    stores: dict[str, list[_Row]] = {}
    for row in _read(folder / "corpus.jsonl"):
        stores.setdefault(row["user_id"], []).append(row)
    asked = _read(folder / "queries.jsonl")
    messages, questions = [], []
    for number, question in enumerate(asked):
        if len(question["evidence"]) <= _MOST_EVIDENCE:
            user = f"{folder.name}-cut{number}"
            lines, cut = _cut(question, asked, stores, chance)
            own = {line["message_id"]: f"{user}-{line['message_id']}" for line in lines}
            messages += [m | {"user_id": user, "message_id": own[m["message_id"]]} for m in lines]
            evidence = [own[key] for key in cut["evidence"]]
            questions.append(cut | {"query_id": user, "user_id": user, "evidence": evidence})
    out = work / f"{folder.name}{CUT_NAME}"
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", messages), ("queries", questions)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return out


def _cut(
    question: _Row, asked: list[_Row], stores: dict[str, list[_Row]], chance: random.Random
) -> tuple[list[_Row], _Row]:
    """Return the lines of a question's small store, and the question."""
    user, evidence = question["user_id"], question["evidence"]
    if chance.random() < _UNANSWERED:
        others = sorted(set(stores) - {user})
        owner = chance.choice(others) if chance.random() < _STRANGE else user
        lines = [line for line in stores[owner] if line["message_id"] not in evidence]
        return _sample(lines, set(), chance), question | {"evidence": []}
    keys = [line["message_id"] for line in stores[user]]
    kept = {keys.index(key) for key in evidence}
    kept |= {at - 1 for at in kept if at and chance.random() < _WITH_LINE_BEFORE}
    if chance.random() < _FOLLOWING:
        earlier = [other for other in asked if _can_precede(other, question)]
        if earlier:
            other = chance.choice(earlier)
            at = keys.index(other["evidence"][0])
            kept.add(at)
            said = " ".join(stores[user][at]["content"].split())
            question = question | {"query": f"{other['query']}\n{said}\n{question['query']}"}
    return _sample(stores[user], kept, chance), question


def _can_precede(other: _Row, question: _Row) -> bool:
    is_simple = len(other["evidence"]) == 1 and "\n" not in other["query"] + question["query"]
    is_same_user = other["user_id"] == question["user_id"]
    return is_simple and is_same_user and other["evidence"][0] not in question["evidence"]


def _sample(lines: list[_Row], kept: set[int], chance: random.Random) -> list[_Row]:
    """Return the kept lines and a few others."""
    others = [at for at in range(len(lines)) if at not in kept]
    chance.shuffle(others)
    return [lines[at] for at in sorted(kept | set(others[: chance.choice(_OTHERS)]))]


def _read(file: Path) -> list[_Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
