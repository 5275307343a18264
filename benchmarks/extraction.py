"""Precision and recall of the rules that extract facts, on labelled conversations.

    python benchmarks/extraction.py                 # all tables, by language
    python benchmarks/extraction.py --show zh03     # the facts found in one conversation

`tests/extraction/conversations.py` is the table that the rules were written with. In
`fixtures/extraction`, `heldout.jsonl` was written before they were tuned, `afterwards.jsonl` later;
neither is read while tuning. A fact counts if it is about the right subject and has all required
words.
"""

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from memrecall.extraction.protocol import RETRACTION, Fact, Utterance  # noqa: E402
from memrecall.extraction.rules import RuleExtractor  # noqa: E402
from memrecall.types import Role  # noqa: E402

HELD_OUT = REPOSITORY / "fixtures" / "extraction" / "heldout.jsonl"
AFTERWARDS = REPOSITORY / "fixtures" / "extraction" / "afterwards.jsonl"
HELD_OUT_NOW = datetime(2026, 5, 14, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Wanted:
    """A fact to find: its subject, and alternatives for each required word."""

    subject: str | None
    words: tuple[tuple[str, ...], ...]

    def fits(self, fact: Fact) -> bool:
        """Return True if a fact matches."""
        text = fact.text.casefold()
        about = self.subject is None or self.subject.casefold() == fact.subject.casefold()
        return about and all(any(w.casefold() in text for w in choice) for choice in self.words)


@dataclass(frozen=True)
class Case:
    """A conversation, the facts in it, and other facts that are acceptable."""

    name: str
    language: str
    now: datetime
    utterances: tuple[Utterance, ...]
    wanted: tuple[Wanted, ...]
    also: tuple[Wanted, ...] = ()


@dataclass
class Score:
    """Counts of facts."""

    found: int = 0
    right: int = 0
    wanted: int = 0
    hit: int = 0
    cases: int = 0
    missed: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return precision, recall and F1 with the counts."""
        precision = self.right / self.found if self.found else 1.0
        recall = self.hit / self.wanted if self.wanted else 1.0
        mean = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return (
            f"{self.cases:4} conversations  precision {precision:.3f} ({self.right}/{self.found})"
            f"  recall {recall:.3f} ({self.hit}/{self.wanted})  F1 {mean:.3f}"
        )


def judge(case: Case, facts: Iterable[Fact], score: Score) -> None:
    """Score the facts found; each expected fact counts once, acceptable ones not at all."""
    score.cases += 1
    score.wanted += len(case.wanted)
    open_ones = list(case.wanted)
    for fact in facts:
        hit = next((one for one in open_ones if one.fits(fact)), None)
        if hit is not None:
            open_ones.remove(hit)
            score.hit += 1
        elif fact.memory_type == RETRACTION or any(one.fits(fact) for one in case.also):
            continue
        score.found += 1
        score.right += hit is not None
    score.missed += [f"{case.name}: {one.words}" for one in open_ones]


def held_out(file: Path = HELD_OUT) -> Iterator[Case]:
    """Read the conversations of a held-out file."""
    for line in file.read_text("utf-8").splitlines():
        case = json.loads(line)
        said = tuple(
            Utterance(f"m{at}", one.get("speaker"), Role(one["role"]), one["text"], HELD_OUT_NOW)
            for at, one in enumerate(case["utterances"])
        )
        wanted, also = (_wanted(case[name]) for name in ("facts", "also"))
        yield Case(case["id"], case["language"], HELD_OUT_NOW, said, wanted, also)


def _wanted(facts: list[dict[str, Any]]) -> tuple[Wanted, ...]:
    return tuple(Wanted(one["subject"], tuple(map(tuple, one["words"]))) for one in facts)


def tuned() -> Iterator[Case]:
    """Return the conversations of the tests; a fact must have the exact words."""
    from tests.extraction.conversations import CONVERSATIONS, NOW, SINGLE

    for at, (language, said, texts) in enumerate([*CONVERSATIONS, *SINGLE]):
        wanted = tuple(Wanted(None, ((text,),)) for text in texts)
        yield Case(f"{language}-{at}", language, NOW, tuple(said), wanted)


async def measure(cases: Iterable[Case]) -> dict[str, Score]:
    """Return the scores by language."""
    extractor = RuleExtractor()
    scores: defaultdict[str, Score] = defaultdict(Score)
    for case in cases:
        found = await extractor.facts(case.utterances, now=case.now, zone=UTC)
        for name in (case.language, "all"):
            judge(case, found.facts, scores[name])
    return dict(scores)


async def show(case: Case) -> None:
    """Print a conversation and the facts found in it."""
    for said in case.utterances:
        print(f"  {said.speaker or said.role}: {said.text}")
    found = await RuleExtractor().facts(case.utterances, now=case.now, zone=UTC)
    for fact in found.facts:
        print(f"    {fact.subject} | {fact.memory_type} | {fact.field} | {fact.text}")


def main() -> None:
    """Print the scores of all tables, or one conversation."""
    parser = argparse.ArgumentParser(description="precision and recall of facts by rules")
    parser.add_argument("--show", help="the name of one held-out conversation")
    parser.add_argument("--missed", action="store_true", help="list what was not found")
    asked = parser.parse_args()
    if asked.show:
        cases = [*held_out(), *held_out(AFTERWARDS)]
        asyncio.run(show(next(case for case in cases if case.name == asked.show)))
        return
    tables = (
        ("written with the rules", tuned()),
        ("held out before tuning", held_out()),
        ("held out later", held_out(AFTERWARDS)),
    )
    for title, table in tables:
        print(title)
        for name, score in sorted(asyncio.run(measure(table)).items()):
            print(f"  {name:4} {score.line()}")
            if asked.missed and name == "all":
                print(*(f"    missed {one}" for one in score.missed), sep="\n")


if __name__ == "__main__":
    main()
