"""What an English sentence does not assert: questions, suppositions, reports, guesses."""

import re
from collections.abc import Iterator

from memrecall.extraction.rules.english.clauses import split_clauses
from memrecall.extraction.rules.english.verbs import form_of

_ASKS = re.compile(
    r"(?:what|where|who|whom|whose|which|why|how|any|anyone|anybody|got any|mind if)\b"
    r"|when (?:is|are|do|does|did|was|were|will|can|should)\b"
    r"|(?:do|does|did|is|are|was|were|have|has|can|could|would|will|should|shall|may|am"
    r"|must)(?: not)?"
    r" (?:you|I|we|he|she|it|they|there|the|my|your|this|that|these|those|our|any|anyone)\b",
    re.IGNORECASE,
)
_TAG = re.compile(
    r"(?:right|correct|ok|okay|no|yes|eh|huh|you know|remember|(?:is|are|do|does|did|was"
    r"|were|have|has|can|will)"
    r" (?:not )?(?:it|I|we|you|they|he|she)(?: not)?)\W*$",
    re.IGNORECASE,
)
_SUPPOSES = re.compile(
    r"\b(?:if|unless|suppose|supposing|imagine|assuming|pretend|hypothetically|what if"
    r"|let us say|in case"
    r"|as though|as if|I wish|if only)\b",
    re.IGNORECASE,
)
_GUESSES = re.compile(
    r"\b(?:maybe|perhaps|might|not sure|no idea|possibly|could be|who knows|kidding|joking)\b",
    re.IGNORECASE,
)
_JOKES = re.compile(r"\b(?:just|only) (?:kidding|joking)\b|\bjk\b", re.IGNORECASE)
_REPORTS = re.compile(
    r"(?:(?:\S+ ){0,4}?(?:said|says|say|told|tells|thinks|think that (?:he|she|they|you)"
    r"|claims?|claimed|wrote|writes"
    r"|believes|asked|asks|reads|suggested|suggests|recommended|recommends|mentioned)\b"
    r"|according to\b|apparently\b"
    r"|in (?:the|this|that|a|my) (?:novel|story|film|movie|dream|game|poem|song|chapter|play)\b"
    r"|the (?:article|book|song|quote|text|email|doc|docs|manual) )",
    re.IGNORECASE,
)
_I_SAY = re.compile(
    r"(?:I|we) (?:\w+ )?(?:say|mean|think|mention|believe|read|write|recommend)\b", re.IGNORECASE
)
_OWES_TO = re.compile(
    r"\b(?:to|will|would|can|cannot|could|should|must|not|let us|let me|please|and|or"
    r"|might|may)(?: \w+ly| also| just)? [a-z]+\b(?! to\b)"
)


def asserted(text: str, *, asks: bool) -> Iterator[str]:
    """The clauses of a sentence that it asserts."""
    if _SUPPOSES.search(text) or _JOKES.search(text):
        return
    clauses = list(_joined(list(split_clauses(text))))
    if asks:
        if not clauses or _TAG.match(clauses[-1]) or not _ASKS.match(clauses[-1]):
            return
        clauses.pop()
    for clause in clauses:
        if _REPORTS.match(clause) and not _I_SAY.match(clause):
            return  # what follows is what somebody said
        if not _ASKS.match(clause) and not _GUESSES.search(clause):
            yield clause


def _joined(clauses: list[str]) -> Iterator[str]:
    """The clauses, without the cuts that part an infinitive from its verb: "to eat and drink"."""
    kept: list[str] = []
    for clause in clauses:
        first = clause.split()[0]
        bare = form_of(first) == "base" and first.islower() and first != "have"
        if kept and bare and _OWES_TO.search(kept[-1]):
            kept[-1] += f" and {clause}"
        else:
            kept.append(clause)
    yield from kept
