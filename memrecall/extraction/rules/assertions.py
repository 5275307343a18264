"""The clauses that a sentence asserts: no questions, guesses, jokes, reports or fiction."""

import re
from itertools import takewhile

from memrecall.extraction.rules.tables import LanguageTable, load_table
from memrecall.extraction.sentences import BULLET, Sentence, is_balanced
from memrecall.types import Language

_TABLES: dict[Language, LanguageTable] = {"en": load_table("en"), "zh": load_table("zh")}
_SHARED = load_table("shared")
_COLON = re.compile(r":\s+|：\s*|(?<=[一-鿿]):")
_PARAGRAPH = re.compile(r"\n\s*\n|(?<=[:：?？])[ ]*\n")
_MAX_GREETING = 20
_ENDED = re.compile(r"[.!~。！～…)）\"”]\W*$")


def is_fiction(text: str) -> bool:
    """Return True if a message quotes a song, tells a story or takes itself back as a joke."""
    return any(table.search("fiction", text) for table in _TABLES.values())


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a message without its lists, which are pasted.

    "No wait. Milan." is one sentence.
    """
    lines = (line for line in text.split("\n") if not BULLET.match(line))
    joined = _SHARED.pattern("open_correction").sub(r"\g<said>, ", "\n".join(lines))
    return [part for part in _PARAGRAPH.split(joined) if part.strip()]


def has_end(paragraph: str) -> bool:
    """Return True if a paragraph ends like a sentence, or only greets."""
    is_short = len(paragraph) <= _MAX_GREETING
    return bool(_ENDED.search(paragraph)) or (is_short and is_introduction(paragraph, ""))


def is_introduction(text: str, asked: str) -> bool:
    """Return True if a speaker greets, or is asked who they are."""
    tables = _TABLES.values()
    return any(table.match("greeting", text) or table.search("who", asked) for table in tables)


def is_about_change(text: str) -> bool:
    """Return True if a message moves or cancels something."""
    return any(table.search("moved", text) for table in _TABLES.values())


def normalize_sentence(sentence: Sentence) -> str:
    """Return a sentence with its contractions written out."""
    return " ".join(_TABLES[sentence.language].rewrite("contractions", sentence.text).split())


def asserted_clauses(sentence: Sentence) -> list[str]:
    """Return the clauses that the speaker states as facts; one joke discards the sentence."""
    table = _TABLES[sentence.language]
    clauses = _split(table, _without_example(table, normalize_sentence(sentence)))
    if sentence.is_question:
        if len(clauses) < 2 or table.search("tag_question", clauses[-1]):
            return []
        clauses = clauses[:-1]
    clauses = [clause for clause in clauses if not table.search("question", clause)]
    if table.search("unasserted", table.remove("own_report", ", ".join(clauses))):
        return []
    # "If I lived in Rome, …" and 她说… are about what follows, not about what was said before.
    asserted = takewhile(lambda clause: not _is_distant(table, clause), clauses)
    return [clause for clause in asserted if is_balanced(clause)]


def _is_distant(table: LanguageTable, clause: str) -> bool:
    said = table.remove("own_report", clause)
    return any(table.search(distance, said) for distance in ("supposition", "reported"))


def _without_example(table: LanguageTable, text: str) -> str:
    """Cut what stands behind a colon, unless the speaker says it of themselves: "my email: …"."""
    colon = _COLON.search(text)
    if colon is None or any(table.match(name, text) for name in ("self", "kin", "own")):
        return text
    opening = table.match("opening", text)
    return text if opening and opening.end() >= colon.end() else text[: colon.start()]


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
