"""Precision and recall of the facts that the rules extract from tables of conversations.

    python benchmarks/extraction.py                 # all tables, by language
    python benchmarks/extraction.py --show zh03     # the facts of one conversation
    python benchmarks/extraction.py --relations     # the relations of unseen_a.jsonl, by language
    python benchmarks/extraction.py --file F.jsonl  # another table; also with --relations

The rules were written with `tests/extraction/conversations.py`; `tests/extraction/scores.py` tells
who wrote the other tables, and how facts are counted.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

if not __package__:  # run as a file, not as a module
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from memrecall.extraction.rules.extractor import RuleExtractor
from tests.extraction.conversations import NOW, STATEMENTS
from tests.extraction.scores import (
    AFTERWARDS,
    FORMS,
    SECOND_UNSEEN,
    THIRD_UNSEEN,
    TRAPS,
    UNSEEN,
    Case,
    ExpectedFact,
    Score,
    held_out,
    measure,
    measure_relations,
)


def tuned() -> Iterator[Case]:
    """Yield the conversations of the tests: a fact must match word for word."""
    for number, (language, utterances, texts) in enumerate(STATEMENTS):
        expected = tuple(ExpectedFact(None, ((text,),)) for text in texts)
        yield Case(f"{language}-{number}", language, NOW, tuple(utterances), expected)


async def show(case: Case) -> None:
    """Print a conversation and its extracted facts."""
    for utterance in case.utterances:
        print(f"  {utterance.speaker or utterance.role}: {utterance.text}")
    result = await RuleExtractor().facts(case.utterances, now=case.now, zone=UTC)
    for fact in result.facts:
        print(f"    {fact.subject} | {fact.memory_type} | {fact.field} | {fact.text}")


def print_scores(scores: dict[str, Score], *, details: bool) -> None:
    """Print the scores by language; with details, what is missed or wrong."""
    for name, score in sorted(scores.items()):
        print(f"  {name:4} {score.line()}")
        if details and name == "all":
            for item in score.wrong:
                print(f"    wrong {item}")
            for item in score.missed:
                print(f"    missed {item}")


def main() -> None:
    """Print the figures of all tables, or one conversation."""
    parser = argparse.ArgumentParser(description="precision and recall of facts by rules")
    parser.add_argument("--show", help="the name of one held-out conversation")
    parser.add_argument("--missed", action="store_true", help="list what is missed or wrong")
    parser.add_argument("--file", type=Path, help="only this table, in the format of traps.jsonl")
    parser.add_argument("--relations", action="store_true", help="measure relations instead")
    arguments = parser.parse_args()
    if arguments.relations:
        files = [("by another author", UNSEEN), ("by another author, second half", SECOND_UNSEEN)]
        files += [("by a third author", THIRD_UNSEEN)]
        files += [("single sentences", FORMS), ("traps of casual chat", TRAPS)]
        for title, file in [(str(arguments.file), arguments.file)] if arguments.file else files:
            print(f"relations: {title}")
            print_scores(asyncio.run(measure_relations(file)), details=arguments.missed)
        return
    if arguments.show:
        cases = [*held_out(), *held_out(AFTERWARDS), *held_out(UNSEEN)]
        asyncio.run(show(next(case for case in cases if case.name == arguments.show)))
        return
    tables = [
        ("written with the rules", tuned()),
        ("held out before tuning", held_out()),
        ("held out later", held_out(AFTERWARDS)),
        ("by another author, errors looked at", held_out(UNSEEN)),
        ("by another author, second half, errors looked at", held_out(SECOND_UNSEEN)),
        ("by a third author, errors looked at", held_out(THIRD_UNSEEN)),
        ("single sentences, by kind of error", held_out(FORMS)),
        ("traps of casual chat", held_out(TRAPS)),
    ]
    if arguments.file:
        tables = [(str(arguments.file), held_out(arguments.file))]
    for title, table in tables:
        print(title)
        print_scores(asyncio.run(measure(table)), details=arguments.missed)


if __name__ == "__main__":
    main()
