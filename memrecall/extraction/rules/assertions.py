"""The clauses that a sentence asserts: no questions, guesses, jokes, reports or fiction."""

from memrecall.extraction.rules.tables import LanguageTable, load_table
from memrecall.extraction.sentences import Sentence, is_balanced
from memrecall.types import Language

_TABLES: dict[Language, LanguageTable] = {"en": load_table("en"), "zh": load_table("zh")}
_DOUBTS = ("supposition", "unasserted")


def is_fiction(text: str) -> bool:
    """Return True if a message quotes a song, tells a story or takes itself back as a joke."""
    return any(table.search("fiction", text) for table in _TABLES.values())


def normalize_sentence(sentence: Sentence) -> str:
    """Return a sentence with its contractions written out."""
    return " ".join(_TABLES[sentence.language].rewrite("contractions", sentence.text).split())


def asserted_clauses(sentence: Sentence) -> list[str]:
    """Return the clauses that the speaker states as facts; one doubt discards the sentence."""
    table = _TABLES[sentence.language]
    clauses = _split(table, normalize_sentence(sentence))
    if sentence.is_question:
        if len(clauses) < 2 or table.search("tag_question", clauses[-1]):
            return []
        clauses = clauses[:-1]
    clauses = [clause for clause in clauses if not table.search("question", clause)]
    text = table.remove("own_report", ", ".join(clauses))
    if any(table.search(doubt, text) for doubt in _DOUBTS):
        return []
    return [clause for clause in clauses if is_balanced(clause)]


def _split(table: LanguageTable, text: str) -> list[str]:
    """Return the clauses of a sentence without their opening words.

    A correction stays in one clause with the new value: "no wait, Milan".
    """
    text = table.pattern("correction_cut").sub(", ", text)
    clauses: list[str] = []
    for piece in table.pattern("clause_boundary").split(text):
        bare = (piece or "").strip(" ,，")
        correction = table.match("correction", bare)
        if not correction and not table.search("tag_question", bare):
            opening = table.match("opening", bare)
            bare = bare[opening.end() :] if opening else bare
        last = table.match("correction", clauses[-1]) if clauses else None
        if last and not last["new"].strip() and bare:
            clauses[-1] = f"{clauses[-1]}, {bare}"
        elif bare:
            clauses.append(bare)
    return clauses
