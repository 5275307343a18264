"""Precision and recall of the facts and relations that the rules extract from conversations.

In `fixtures/extraction`, `heldout.jsonl` was written before the rules were tuned and
`afterwards.jsonl` later. `unseen_a.jsonl` and `unseen_b.jsonl` are by an author who has not read
the rules, `unseen_c.jsonl` by a third one. What the rules read in all of them has been looked at
since, and rules were changed after it: none is unseen any more. `forms.jsonl` has sentences of six
kinds that the rules missed in the first, on other subjects, and `traps.jsonl` the kinds that they
got wrong in the second; both were written before the fixes. A fact counts if it has the expected
subject and words; a relation if its ends, its kind and whether it has ended are as expected.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.extraction.protocol import RETRACTION, Fact, Utterance
from memrecall.extraction.rules.extractor import RuleExtractor
from memrecall.types import Role

FOLDER = Path(__file__).parents[2] / "fixtures" / "extraction"
HELD_OUT = FOLDER / "heldout.jsonl"
AFTERWARDS = FOLDER / "afterwards.jsonl"
UNSEEN = FOLDER / "unseen_a.jsonl"
FORMS = FOLDER / "forms.jsonl"
SECOND_UNSEEN = FOLDER / "unseen_b.jsonl"
THIRD_UNSEEN = FOLDER / "unseen_c.jsonl"
TRAPS = FOLDER / "traps.jsonl"
ALL_FILES = (HELD_OUT, AFTERWARDS, UNSEEN, SECOND_UNSEEN, THIRD_UNSEEN, FORMS, TRAPS)
# The rules distinguish acquaintances, which the fixture does not.
ACQUAINTANCES = {"friend_of", "neighbour_of", "colleague_of", "managed_by", "advised_by"}
ARTICLES = ("the ", "a ", "an ", "my ")
HELD_OUT_NOW = datetime(2026, 5, 14, 12, tzinfo=UTC)


@dataclass(frozen=True)
class ExpectedFact:
    """A fact that should be extracted: its subject, and alternatives for each word it needs."""

    subject: str | None
    words: tuple[tuple[str, ...], ...]

    def fits(self, fact: Fact) -> bool:
        """Return True if this is the fact."""
        text = fact.text.casefold()
        is_about = self.subject is None or self.subject.casefold() == fact.subject.casefold()
        return is_about and all(
            any(word.casefold() in text for word in alternatives) for alternatives in self.words
        )


@dataclass(frozen=True)
class Case:
    """A conversation, its facts, and optional facts that are not wrong."""

    name: str
    language: str
    now: datetime
    utterances: tuple[Utterance, ...]
    expected: tuple[ExpectedFact, ...]
    optional: tuple[ExpectedFact, ...] = ()
    relations: tuple[dict[str, Any], ...] = ()


@dataclass
class Score:
    """Counts of facts."""

    extracted: int = 0
    correct: int = 0
    expected: int = 0
    cases: int = 0
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return precision, recall and F1, with the counts."""
        precision = self.correct / self.extracted if self.extracted else 1.0
        recall = self.correct / self.expected if self.expected else 1.0
        mean = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return (
            f"{self.cases:4} conversations"
            f"  precision {precision:.3f} ({self.correct}/{self.extracted})"
            f"  recall {recall:.3f} ({self.correct}/{self.expected})  F1 {mean:.3f}"
        )


def judge(case: Case, facts: Iterable[Fact], score: Score) -> None:
    """Count the facts: each expected fact once, optional ones not at all."""
    score.cases += 1
    score.expected += len(case.expected)
    missing = list(case.expected)
    for fact in facts:
        match = next((expected for expected in missing if expected.fits(fact)), None)
        if match is not None:
            missing.remove(match)
            score.correct += 1
        elif fact.memory_type == RETRACTION or any(item.fits(fact) for item in case.optional):
            continue
        score.extracted += 1
    score.missed += [f"{case.name}: {expected.words}" for expected in missing]


def held_out(file: Path = HELD_OUT) -> Iterator[Case]:
    """Yield the conversations of a held-out file."""
    for line in file.read_text("utf-8").splitlines():
        case = json.loads(line)
        utterances = tuple(
            Utterance(
                f"m{number}", row.get("speaker"), Role(row["role"]), row["text"], HELD_OUT_NOW
            )
            for number, row in enumerate(case["utterances"])
        )
        expected, optional = (_read_facts(case[name]) for name in ("facts", "also"))
        relations = tuple(case.get("relations", ()))
        yield Case(
            case["id"], case["language"], HELD_OUT_NOW, utterances, expected, optional, relations
        )


def _read_facts(rows: list[dict[str, Any]]) -> tuple[ExpectedFact, ...]:
    return tuple(ExpectedFact(row["subject"], tuple(map(tuple, row["words"]))) for row in rows)


async def measure(cases: Iterable[Case]) -> dict[str, Score]:
    """Return the scores by language."""
    extractor = RuleExtractor()
    scores: defaultdict[str, Score] = defaultdict(Score)
    for case in cases:
        result = await extractor.facts(case.utterances, now=case.now, zone=UTC)
        for name in (case.language, "all"):
            judge(case, result.facts, scores[name])
    return dict(scores)


def relation_key(
    source: str, relation: str, destination: str, *, ended: bool
) -> tuple[str, str, str, bool]:
    """Return a relation in the form in which two are compared."""
    ends = [end.casefold() for end in (source, destination)]
    for article in ARTICLES:
        ends = [end.removeprefix(article) for end in ends]
    kind = "knows" if relation in ACQUAINTANCES else relation
    return ends[0], kind, ends[1], ended


async def measure_relations(file: Path = UNSEEN) -> dict[str, Score]:
    """Return the scores of the relations in a file of conversations, by language."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    for case in held_out(file):
        related = await RuleExtractor().relations(case.utterances, now=case.now)
        relations = {
            relation_key(r.source, r.relationship, r.destination, ended=r.ended)
            for r in related.relations
        }
        expected = {
            relation_key(row["subject"], row["relation"], row["object"], ended=row["ends"])
            for row in case.relations
        }
        for name in (case.language, "all"):
            score = scores[name]
            score.cases += 1
            score.expected += len(expected)
            score.extracted += len(relations)
            score.correct += len(relations & expected)
            score.missed += [f"{case.name}: {item}" for item in sorted(expected - relations)]
            score.wrong += [f"{case.name}: {item}" for item in sorted(relations - expected)]
    return dict(scores)
