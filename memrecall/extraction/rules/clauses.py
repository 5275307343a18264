"""Clauses of a sentence: where they end, what they assert and what they are about."""

import re
from collections.abc import Callable, Iterator

from memrecall.extraction.rules.statements import Clause
from memrecall.extraction.rules.tables import LanguageTable

_EDGES = {"en": " ,;:-–—()", "zh": " 、:：…~～"}
_MAX_LEAD = 40
_MAX_LEAD_STEP = 18


def strip_opening(table: LanguageTable, text: str) -> str:
    """Return the text without opening words such as "well," and "by the way,"."""
    match = table.match("opening", text)
    return text[match.end() :] if match else text


def split_clauses(table: LanguageTable, text: str) -> Iterator[str]:
    """Yield the clauses of a sentence without what only accompanies them."""
    for piece in table.pattern("clause_boundary").split(text):
        bare = strip_opening(table, piece.strip(_EDGES[table.language]))
        bare = table.remove("trailing_clause", table.remove("trailing_filler", bare))
        if bare:
            yield bare


def asserted_clauses(
    table: LanguageTable, clauses: list[str], text: str, *, is_question: bool
) -> Iterator[str]:
    """Yield the clauses that a sentence asserts: no questions, guesses, requests or reports."""
    if table.search("supposition", text) or table.search("joke", text):
        return
    if is_question and clauses:
        last = clauses[-1]
        is_tag = table.search("tag_question", last) or table.search("tag_question", text)
        if is_tag or not table.search("final_question", last):
            return
        clauses = clauses[:-1]
    for clause in clauses:
        if table.search("report", clause) and not table.match("own_report", clause):
            return  # The clauses that follow are the words of another person.
        if not any(
            table.search(mood, clause) for mood in ("question", "guess", "request", "aside")
        ):
            yield clause


def read_clause(table: LanguageTable, text: str, is_name: Callable[[str], bool]) -> Clause | None:
    """Return the clause with its subject, or None if it names none.

    `is_name` decides whether the first words of the clause are a person's name.
    """
    starts = _lead_ends(table, text)
    for kind, pattern in table.patterns("subjects"):
        for start in starts if kind != "named" else starts[:1]:
            match = pattern.fullmatch(text, start)
            if match and (kind != "named" or is_name(match["name"])):
                return _build(table, kind, match, start)
    return None


def _build(table: LanguageTable, kind: str, match: re.Match[str], start: int) -> Clause:
    groups = {name: value or "" for name, value in match.groupdict().items()}
    lead = groups.get("lead", "")
    if start and table.pattern("subject_me").match(match.string, start):
        lead = match.string[:start]
    lead, predicate = lead.strip(" ,，"), groups["predicate"]
    if kind == "self":
        return Clause("self", predicate, lead)
    if kind == "kin":
        noun = "".join(groups.get(part, "") for part in ("former", "adjective", "noun")).strip()
        return Clause("kin", predicate, lead, noun, groups["name"], "my")
    if kind == "pronoun":
        is_thing = groups["word"].lower() in ("it", "它")
        return Clause("it" if is_thing else "named", predicate, lead, noun=groups["word"])
    if kind == "thing":
        return Clause(
            "thing", predicate, lead, groups["noun"], "", groups.get("owner", "my").lower()
        )
    return Clause("named", predicate, lead, name=groups["name"].rstrip("."))


def _lead_ends(table: LanguageTable, text: str) -> list[int]:
    """Return where the subject may start: at the start of a clause, or behind words of time.

    The steps are followed one by one: a single pattern that repeats them would take exponential
    time on texts such as 上周上周上周.
    """
    step = table.pattern("lead_step")
    ends = [0]
    for start in ends:
        if start < _MAX_LEAD and step.match(text, start):
            reach = range(start + 1, min(start + _MAX_LEAD_STEP, len(text)) + 1)
            ends += [end for end in reach if end not in ends and step.fullmatch(text, start, end)]
    return sorted(ends)
