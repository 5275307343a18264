"""Sentences that need the one before: corrections ("I meant Lyon") and short answers."""

import re
from dataclasses import replace

from memrecall.extraction.rules.dates import find_statement_times
from memrecall.extraction.rules.sentences import Sentence, detect_language
from memrecall.extraction.rules.statements import ReferenceTime, Statement
from memrecall.extraction.rules.tables import load_table

_TABLES = {"en": load_table("en"), "zh": load_table("zh")}
_SHARED = load_table("shared")
_MAX_ANSWER_WORDS = 7
_MAX_ANSWER_CHARACTERS = 14
_MAX_CORRECTION_WORDS = 4
_MAX_CORRECTION_CHARACTERS = 30
_MAX_QUESTION = 400


def complete_answer(sentence: Sentence, question: str) -> Sentence | None:
    """Return the short answer to a question as a whole sentence; None if it is none."""
    text = sentence.text
    is_chinese = sentence.language == "zh"
    size = len(text) if is_chinese else len(text.split())
    limit = _MAX_ANSWER_CHARACTERS if is_chinese else _MAX_ANSWER_WORDS
    if sentence.is_question or size > limit or _SHARED.fullmatch("empty_answer", text):
        return None
    last = re.split(r"(?<=[.!。！\n])\s*", question.strip()[-_MAX_QUESTION:])[-1]
    if not last.rstrip().endswith(("?", "？")):
        return None
    answer = _SHARED.remove("answer_opening", text).strip(" ,.，。")
    for table in _TABLES.values():
        for template, pattern in table.patterns("answers"):
            if match := pattern.search(last):
                topic = next((group for group in match.groupdict().values() if group), "")
                full = template.replace("{what}", topic.strip()).replace("{answer}", answer)
                return Sentence(full, is_question=False, language=detect_language(full))
    return None


def correct_statement(
    sentence: Sentence, previous: Statement, time: ReferenceTime
) -> Statement | None:
    """Return the previous statement with what a sentence corrects; None if it is no correction."""
    table = _TABLES[sentence.language]
    is_cue = table.match("correction_cue", sentence.text)
    match = table.fullmatch("correction", sentence.text) if is_cue else None
    if match is None or previous.language != sentence.language:
        return None
    new, old = match["new"].strip(), (match["old"] or "").strip()
    text = _replace(previous, new, old, time)
    if text is None or text == previous.text:
        return None
    value = previous.value.replace(old, new) if old else previous.value
    return replace(previous, text=text, value=value, relations=())


def _replace(previous: Statement, new: str, old: str, time: ReferenceTime) -> str | None:
    text = previous.text
    if old and old in text:
        return text.replace(old, new)
    if find_statement_times(new, time):
        times = find_statement_times(text, time)
        if not times:
            return None
        start, words = times[-1].position, times[-1].text
        lead = re.match(r"(?:on|in|at) ", words, re.IGNORECASE)
        has_lead = re.match(r"(?:on|in|at|next|tomorrow|today|this)\b", new, re.IGNORECASE)
        written = lead.group() + new if lead and not has_lead else new
        return text[:start] + written + text[start + len(words) :]
    is_short = len(new.split()) <= _MAX_CORRECTION_WORDS and len(new) <= _MAX_CORRECTION_CHARACTERS
    has_value = previous.field is not None and previous.value and previous.value in text
    return text.replace(previous.value, new) if is_short and has_value and not old else None
