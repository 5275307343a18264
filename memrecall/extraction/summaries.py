"""Summaries without a model: the most informative sentences, in order, with who and when."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memrecall.extraction.protocol import Extractor, Summary, Utterance, text_length
from memrecall.text.language import STOP_CHARS, STOP_TERMS, language_of
from memrecall.text.snippets import truncate_at_word
from memrecall.text.tokens import BREAK, analyze
from memrecall.text_length import ELLIPSIS
from memrecall.types import Language, Role
from memrecall.workers import in_process

_NUMBER_WEIGHT, _QUESTION_WEIGHT, _ASSISTANT_WEIGHT = 1.5, 0.3, 0.7
_MIN_SCORE = 0.2
_LAYER_SHARE = 0.7  # of the length of the summaries below
_REPEATED_WEIGHT = 0.35  # Of a term that an earlier sentence of the summary has already.
_MAX_SENTENCES = 2_000  # Of longer texts only the longest sentences are scored.
_CANDIDATES = 12  # Sentences beyond cannot win, even after the discount for repeated terms.
_LONGEST_SENTENCE = 400
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[。！？]|\n")
_END = re.compile(r"(?:[.!?]+[\"')\]]*(?=\s|$)|(?:[。！？；]+|…+|[!?]+)[”」』）)]*|\n+|;\s)")
_BULLET = re.compile(r"^\s*(?:[-*•·–]|\d{1,2}[.)、])\s+")
_CUT = re.compile(r"[，,；;、 ](?=[^，,；;、 ]*$)")
_NO_TERMS = STOP_TERMS | STOP_CHARS | {BREAK}
_DIGITS = re.compile(r"\d")
_WORD = re.compile(r"\w")
_END_MARKS = (".", "。", "!", "?", "！", "？", "…")
_ROLE_NAMES: dict[Language, dict[Role, str]] = {
    "en": {
        Role.USER: "User",
        Role.ASSISTANT: "Assistant",
        Role.TOOL: "Tool",
        Role.SYSTEM: "System",
    },
    "zh": {Role.USER: "用户", Role.ASSISTANT: "助手", Role.TOOL: "工具", Role.SYSTEM: "系统"},
}
_ROLES = {name: role for names in _ROLE_NAMES.values() for role, name in names.items()}
_TURN = re.compile(
    r"(?:\[(?P<day>\d{4}-\d\d-\d\d)\] )?(?P<speaker>[^\s:][^:\n]{0,39}): (?P<text>.+)"
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence without its end mark."""

    text: str
    is_question: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence with its speaker, day, terms and score."""

    sentence: _Sentence
    speaker: str
    day: str
    role: Role
    terms: frozenset[str]
    score: float = 0.0


async def summarise_with(
    extractor: Extractor | None, lines: str | Sequence[Utterance | str], limit_characters: int
) -> Summary:
    """Return a summary by a model's extractor, or without one the most informative sentences."""
    if extractor is not None:
        return await extractor.summarise(lines, limit_characters)
    length = text_length(*([lines] if isinstance(lines, str) else lines))
    return Summary(await in_process(length, summarise, lines, limit_characters))


def summarise(lines: str | Sequence[Utterance | str], limit_characters: int) -> str:
    """Return the most informative sentences within the limit; everything if it fits.

    Several earlier summaries are always shortened: a higher layer says less, not the same.
    """
    messages = [lines] if isinstance(lines, str) else lines
    texts = [message for message in messages if isinstance(message, str)]
    if len(texts) > 1 and len(texts) == len(messages):
        limit_characters = min(limit_characters, int(_LAYER_SHARE * sum(map(len, texts))))
    scored = _score_lines(messages, are_summaries=not isinstance(lines, str))
    whole = _write(scored)
    if len(whole) <= limit_characters:
        return whole
    chosen: list[int] = []
    heads: set[tuple[str, str]] = set()
    used = 0
    for place in _rank(scored):
        line = scored[place]
        if line.score <= _MIN_SCORE:
            break
        is_known = (line.speaker, line.day) in heads  # and probably written once for both
        cost = len(line.sentence.text if is_known else _write([line])) + 1
        if used + cost <= limit_characters + 1:
            chosen.append(place)
            heads.add((line.speaker, line.day))
            used += cost
    while chosen and len(whole := _write([scored[place] for place in sorted(chosen)])) > (
        limit_characters
    ):
        chosen.pop()  # the least informative one
    if chosen:
        return whole
    best = max(scored, key=lambda line: line.score, default=None)
    return _truncate(_write([best]), limit_characters) if best else ""


def _score_lines(messages: Sequence[Utterance | str], *, are_summaries: bool) -> list[_Line]:
    lines = [line for message in messages for line in _split_message(message, are_summaries)]
    if len(lines) > _MAX_SENTENCES:
        places = sorted(range(len(lines)), key=lambda place: -len(lines[place].sentence.text))
        lines = [lines[place] for place in sorted(places[:_MAX_SENTENCES])]
    # A sentence that is repeated, such as "Noted.", does not make its words more important.
    distinct = {line.sentence.text: line.terms for line in lines}
    counts = Counter(term for terms in distinct.values() for term in terms)
    return [replace(line, score=_score(line, counts)) for line in lines]


def _split_message(message: Utterance | str, is_summary: bool) -> Iterator[_Line]:
    if isinstance(message, str):
        turns = _read_summary(message) if is_summary else [("", "", Role.USER, message)]
    else:
        names = _ROLE_NAMES[language_of(message.text)]
        speaker = message.speaker or names.get(message.role, str(message.role))
        day = f"{message.ts:%Y-%m-%d}" if message.ts else ""
        turns = [(day, speaker, message.role, message.text)]
    for day, speaker, role, text in turns:
        for sentence in _split_sentences(text):
            terms = frozenset(analyze(sentence.text).atoms) - _NO_TERMS
            yield _Line(sentence, speaker, day, role, terms)


def _read_summary(text: str) -> Iterator[tuple[str, str, Role, str]]:
    """Yield day, speaker, role and text of each line of an earlier summary.

    Without them, "Assistant: Noted." is scored as something that the user said.
    """
    day = ""
    for line in text.split("\n"):
        match = _TURN.fullmatch(line)
        if match is None:
            yield "", "", Role.USER, line
            continue
        day = match["day"] or day
        yield day, match["speaker"], _ROLES.get(match["speaker"], Role.USER), match["text"]


def _split_sentences(text: str) -> Iterator[_Sentence]:
    start = 0
    for match in [*_END.finditer(text), None]:
        piece = text[start : match.start() if match else len(text)]
        end = match.group() if match else ""
        for part in _cut_long(_BULLET.sub("", piece).strip()):
            if _WORD.search(part):  # no fences of code, rules and smileys
                yield _Sentence(part, "?" in end or "？" in end)
        start = match.end() if match else start


def _cut_long(text: str) -> Iterator[str]:
    while len(text) > _LONGEST_SENTENCE:
        comma = _CUT.search(text[:_LONGEST_SENTENCE])
        end = comma.end() if comma else _LONGEST_SENTENCE
        yield text[:end].strip(" ，,；;、")
        text = text[end:]
    if text:
        yield text


def _score(line: _Line, counts: Counter[str]) -> float:
    """Score a sentence by its frequent terms."""
    sentence, terms = line.sentence, line.terms
    if len(terms) < 2:
        return _MIN_SCORE * len(terms)
    score = sum(1 + math.log(counts[term]) for term in terms) / math.sqrt(len(terms) + 3)
    score *= _NUMBER_WEIGHT if _DIGITS.search(sentence.text) else 1
    score *= _QUESTION_WEIGHT if sentence.is_question else 1
    is_person = line.role not in (Role.ASSISTANT, Role.TOOL, Role.SYSTEM)
    return score * (1 if is_person else _ASSISTANT_WEIGHT)


def _rank(lines: Sequence[_Line]) -> Iterator[int]:
    """Yield the places of the lines, best first; repeated terms count less."""
    covered: set[str] = set()
    ranked = sorted(range(len(lines)), key=lambda place: -lines[place].score)
    while ranked:
        candidates = ranked[:_CANDIDATES]
        best = max(candidates, key=lambda place: (_discount(lines[place], covered), -place))
        ranked.remove(best)
        covered |= lines[best].terms
        yield best


def _discount(line: _Line, covered: set[str]) -> float:
    if not line.terms:
        return 0.0
    repeated = len(line.terms & covered) / len(line.terms)
    return line.score * (1 - repeated * (1 - _REPEATED_WEIGHT))


def _write(lines: Sequence[_Line]) -> str:
    """Return a line of text for each turn, with the day where it changes."""
    turns: list[str] = []
    day = speaker = None
    for line in lines:
        text = line.sentence.text + _end_mark(line.sentence)
        if line.speaker == speaker and line.day == day and turns:
            turns[-1] += ("" if language_of(text) == "zh" else " ") + text
            continue
        date = f"[{line.day}] " if line.day and line.day != day else ""
        turns.append(date + (f"{line.speaker}: " if line.speaker else "") + text)
        day, speaker = line.day, line.speaker
    return "\n".join(turns)


def _end_mark(sentence: _Sentence) -> str:
    if sentence.text.endswith(_END_MARKS):
        return ""
    statement, question = ("。", "？") if language_of(sentence.text) == "zh" else (".", "?")
    return question if sentence.is_question else statement


def shorten(text: str, limit: int) -> str:
    """Return the text within a limit: whole sentences if at least one fits."""
    return whole_sentences(text, limit) or _truncate(text, limit)


def whole_sentences(text: str, limit: int) -> str:
    """Return the first sentences of a text that fit into a limit; "" if none does."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() <= limit]
    return text[: ends[-1]].rstrip() if ends else ""


def _truncate(text: str, limit: int) -> str:
    """Return the text, cut between words so that it fits with its ellipsis."""
    if len(text) <= limit:
        return text
    return truncate_at_word(text, limit - len(ELLIPSIS)) if limit > len(ELLIPSIS) else ""
