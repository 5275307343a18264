"""Summaries without a model: the most telling sentences, in their order, with who and when."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memrecall.extraction.protocol import Utterance
from memrecall.extraction.rules.chinese.reader import read_chinese
from memrecall.extraction.rules.dating import Moment
from memrecall.extraction.rules.english.reader import read_english
from memrecall.extraction.rules.speech import Sentence, sentences
from memrecall.extraction.rules.statements import Scene
from memrecall.model.prompts import Language
from memrecall.text.highlights import best_cut
from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.tokens import BREAK, analyze
from memrecall.types import Role

_TELLS, _NUMBER, _ASKS, _ASSISTANT, _EMPTY = 1.6, 1.2, 0.6, 0.7, 0.2
_SEEN_BEFORE = 0.35  # of a term's weight, if a chosen sentence has it already
_MOST_SENTENCES = 2_000  # beyond, only the longest are looked at: reading all would take seconds
_ANY_TIME = Moment(datetime(2026, 1, 1, tzinfo=UTC), UTC)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[。！？]|\n")
_DIGITS = re.compile(r"\d")
_CALLED: dict[Language, dict[Role, str]] = {
    "en": {
        Role.USER: "User",
        Role.ASSISTANT: "Assistant",
        Role.TOOL: "Tool",
        Role.SYSTEM: "System",
    },
    "zh": {Role.USER: "用户", Role.ASSISTANT: "助手", Role.TOOL: "工具", Role.SYSTEM: "系统"},
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence, who said it, and when."""

    text: str
    end: str
    who: str
    day: str
    terms: frozenset[str]
    worth: float


def summarise(
    lines: str | Sequence[Utterance | str], limit_characters: int, language: Language | None = None
) -> str:
    """At most so many characters of the most telling sentences; everything, if it fits."""
    spoken = list(_read([lines] if isinstance(lines, str) else lines, language))
    whole = _write(spoken)
    if len(whole) <= limit_characters:
        return whole
    chosen: set[int] = set()
    for at in _by_worth(spoken):
        if spoken[at].worth <= _EMPTY:
            break
        told = _write([spoken[one] for one in sorted({*chosen, at})])
        if len(told) <= limit_characters:
            chosen.add(at)
    if chosen:
        return _write([spoken[one] for one in sorted(chosen)])
    best = max(spoken, key=lambda line: line.worth, default=None)
    return _cut(_write([best]), limit_characters) if best else ""


def _read(lines: Sequence[Utterance | str], language: Language | None) -> Iterator[_Line]:
    pieces = [piece for line in lines for piece in _sentences(line, language)]
    if len(pieces) > _MOST_SENTENCES:
        kept = sorted(range(len(pieces)), key=lambda at: (-len(pieces[at][0].text), at))
        pieces = [pieces[at] for at in sorted(kept[:_MOST_SENTENCES])]
    terms = [frozenset(_terms(piece[0].text)) for piece in pieces]
    counts = Counter(term for found in terms for term in found)
    for (sentence, who, day, role), found in zip(pieces, terms, strict=True):
        worth = _worth(sentence, role, found, counts)
        yield _Line(sentence.text, _end(sentence), who, day, found, worth)


def _sentences(
    line: Utterance | str, language: Language | None
) -> Iterator[tuple[Sentence, str, str, Role]]:
    if isinstance(line, str):
        who, day, role, text = "", "", Role.USER, line
    else:
        text, role = line.text, line.role
        spoken: Language = language or ("zh" if re.search("[\u4e00-\u9fff]", text) else "en")
        who = line.speaker or _CALLED[spoken].get(role, str(role))
        day = f"{line.ts:%Y-%m-%d}" if line.ts else ""
    for sentence in sentences(text):
        yield sentence, who, day, role


def _terms(text: str) -> Iterator[str]:
    for atom in analyze(text).atoms:
        if atom != BREAK and atom not in STOP_TERMS and atom not in STOP_CHARS:
            yield atom


def _worth(sentence: Sentence, role: Role, terms: frozenset[str], counts: Counter[str]) -> float:
    """How much a sentence says: its words that come up often, and what it states."""
    if len(terms) < 2:
        return _EMPTY * len(terms)
    said = sum(1 + math.log(counts[term]) for term in terms) / math.sqrt(len(terms) + 3)
    read = read_chinese if sentence.language == "zh" else read_english
    if any(True for _ in read(sentence, Scene(None), _ANY_TIME)):
        said *= _TELLS
    said *= _NUMBER if _DIGITS.search(sentence.text) else 1
    said *= _ASKS if sentence.asks else 1
    return said * (_ASSISTANT if role in (Role.ASSISTANT, Role.TOOL, Role.SYSTEM) else 1)


def _by_worth(lines: Sequence[_Line]) -> Iterator[int]:
    """The places of the lines, most telling first; what repeats a chosen one counts less."""
    seen: set[str] = set()
    left = set(range(len(lines)))
    ranked = sorted(left, key=lambda at: (-lines[at].worth, at))
    while ranked:
        # Only the first few can win after the discount of what was said already.
        window = ranked[:12]
        best = max(window, key=lambda at: (_fresh(lines[at], seen), -at))
        ranked.remove(best)
        seen |= lines[best].terms
        yield best


def _fresh(line: _Line, seen: set[str]) -> float:
    if not line.terms:
        return 0.0
    known = len(line.terms & seen) / len(line.terms)
    return line.worth * (1 - known * (1 - _SEEN_BEFORE))


def _write(lines: Sequence[_Line]) -> str:
    """The sentences as text: a line for each turn, with the day where it changes."""
    told: list[str] = []
    day = who = None
    for line in lines:
        text = line.text + line.end
        if line.who == who and line.day == day and told:
            told[-1] += ("" if _is_chinese(text) else " ") + text
            continue
        date = f"[{line.day}] " if line.day and line.day != day else ""
        told.append(date + (f"{line.who}: " if line.who else "") + text)
        day, who = line.day, line.who
    return "\n".join(told)


def _is_chinese(text: str) -> bool:
    return re.search("[\u4e00-\u9fff]", text) is not None


def _end(sentence: Sentence) -> str:
    if sentence.text.endswith((".", "。", "!", "?", "！", "？", "…")):
        return ""
    if sentence.asks:
        return "？" if sentence.language == "zh" else "?"
    return "。" if sentence.language == "zh" else "."


def shorten(text: str, limit: int) -> str:
    """The text within so many characters: whole sentences if at least one fits."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() <= limit]
    return text[: ends[-1]].rstrip() if ends else _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    """The text cut between words, with a sign that it goes on."""
    if len(text) <= limit:
        return text
    if limit < 2:
        return ""
    ends = range(limit - 1, max(limit // 2, 1) - 1, -1)
    return text[: best_cut(text, ends, limit - 1)].rstrip() + "…"
