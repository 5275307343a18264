"""Writing the handoff: keys, a summary with quotations and dates, a confidence, a question."""

from collections.abc import Sequence
from typing import Any

from memrecall.agent.offline.findings import Candidate, Findings, covered
from memrecall.agent.offline.judgement import Judgement
from memrecall.agent.offline.phrases import say
from memrecall.agent.offline.request import ParsedRequest, WindowMessage
from memrecall.agent.offline.transcript import Transcript
from memrecall.budget import Limit

_QUOTED = 160
_ASKED = 80
_WORDS_TOLD = 4
_SURE_IN_WINDOW = 0.8
_TWO = 2


def hand_off(
    reading: ParsedRequest, transcript: Transcript, found: Findings, judgement: Judgement
) -> dict[str, Any]:
    """The arguments of the handoff that fits what was found."""
    if not found.searched and not found.candidates:
        return _failed(reading, found, transcript.last_for)
    if judgement.abstains:
        return _not_found(reading, transcript, found, judgement)
    return _found(reading, found, judgement)


def _found(reading: ParsedRequest, found: Findings, judgement: Judgement) -> dict[str, Any]:
    language = reading.language
    chosen = [judged.candidate for judged in judgement.chosen]
    lines = [say(language, "summary_found", asked=_short(reading.text, _ASKED))]
    lines += [_quote(reading, candidate) for candidate in chosen]
    lines += _later(reading, judgement) + _remarks(reading, found)
    return {
        "reason": say(language, "found", count=len(chosen)),
        "search_summary": "\n".join(lines),
        "relevant_memory_keys": [candidate.key for candidate in chosen],
        "confidence": judgement.confidence,
        "needs_more_info": False,
        "reasoning": _why(reading, found, chosen),
    }


def _not_found(
    reading: ParsedRequest, transcript: Transcript, found: Findings, judgement: Judgement
) -> dict[str, Any]:
    language = reading.language
    queries = dict.fromkeys(
        f"“{_short(str(step.arguments.get('query', '')), _ASKED)}”" for step in transcript.searches
    )
    told = say(language, "and").join(queries) or "-"
    asked = _short(reading.text, _ASKED)
    lines = [say(language, "summary_not_found", asked=asked, queries=told)]
    for judged in judgement.chosen[:1]:
        hit = judged.candidate
        told = _short(hit.text, _QUOTED)
        lines.append(say(language, "closest", when=hit.day, who=_who(reading, hit), text=told))
    return {
        "reason": say(language, "not_found"),
        "search_summary": "\n".join([*lines, *_remarks(reading, found)]),
        "relevant_memory_keys": [],
        "confidence": round(min(judgement.confidence / 2, 0.2), 2),
        "needs_more_info": True,
        "follow_up_question": _question(reading),
        "reasoning": say(language, "why_not", count=len(found.hits)) if found.hits else None,
    }


def _failed(reading: ParsedRequest, found: Findings, limit: Limit | None) -> dict[str, Any]:
    """No search worked, or none could be made: that is not the same as nothing found."""
    language = reading.language
    codes = ", ".join(dict.fromkeys(found.broken))
    if codes:
        summary = say(language, "summary_failed", codes=codes)
    elif limit is not None:
        summary = say(language, "summary_limited", limit=limit)
    else:
        summary = say(language, "summary_unsearched")
    return {
        "reason": say(language, "failed" if codes else "unsearched"),
        "search_summary": summary,
        "relevant_memory_keys": [],
        "confidence": 0.0,
        "needs_more_info": False,
    }


def hand_off_window(
    reading: ParsedRequest, line: WindowMessage, stored: Sequence[Candidate]
) -> dict[str, Any]:
    """What is meant stands in the conversation: nothing needs to be recalled."""
    language = reading.language
    who = say(language, line.role if line.role in ("user", "assistant") else "somebody")
    text = _short(line.text, _QUOTED)
    return {
        "reason": say(language, "in_window"),
        "search_summary": say(language, "summary_in_window", who=who, text=text),
        "relevant_memory_keys": [hit.key for hit in stored],
        "confidence": _SURE_IN_WINDOW,
        "needs_more_info": False,
    }


def hand_off_nothing(reading: ParsedRequest) -> dict[str, Any]:
    """The message refers to nothing at all."""
    return {
        "reason": say(reading.language, "nothing_asked"),
        "search_summary": say(reading.language, "summary_nothing_asked"),
        "relevant_memory_keys": [],
        "confidence": 0.0,
        "needs_more_info": False,
    }


def _later(reading: ParsedRequest, judgement: Judgement) -> list[str]:
    """Of the user's statements on different days the later one counts, if they differ."""
    days = {judged.candidate.day for judged in judgement.rival_statements(reading)}
    if len(days) < _TWO:
        return []
    return [say(reading.language, "later_wins", when=max(days))]


def _remarks(reading: ParsedRequest, found: Findings) -> list[str]:
    remarks = [found.withheld] if found.withheld else []
    if found.broken:
        codes = ", ".join(dict.fromkeys(found.broken))
        remarks.append(say(reading.language, "partly_failed", codes=codes))
    return remarks


def _quote(reading: ParsedRequest, hit: Candidate) -> str:
    text = _short(hit.text, _QUOTED)
    return say(reading.language, "quote", when=hit.day, who=_who(reading, hit), text=text)


def _who(reading: ParsedRequest, hit: Candidate) -> str:
    if hit.speaker and hit.speaker not in ("user", "assistant"):
        return hit.speaker
    known = hit.role if hit.role in ("user", "assistant") else hit.speaker
    if known in ("user", "assistant"):
        return say(reading.language, known)
    return say(reading.language, "memory" if hit.kind == "memory" else "somebody")


def _short(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[:length] + "…"


def _why(reading: ParsedRequest, found: Findings, chosen: list[Candidate]) -> str:
    said = " ".join(candidate.text for candidate in chosen)
    shared = [word for word in (*reading.exact, *reading.words) if covered([word], said) >= 1]
    words = say(reading.language, "and").join(dict.fromkeys(shared[:_WORDS_TOLD]))
    best = max(candidate.score for candidate in chosen)
    phrase = "why" if words else "why_meaning"
    times = say(reading.language, "once" if found.searched == 1 else "times", count=found.searched)
    return say(reading.language, phrase, words=words, score=best, searches=times)


def _question(reading: ParsedRequest) -> str:
    """What to ask the user: it names what is missing."""
    language = reading.language
    words = say(language, "and").join((reading.exact or reading.words)[:_WORDS_TOLD])
    if not words and reading.references:
        return say(language, "ask_bare", reference=reading.references[0].text)
    words = words or say(language, "this")
    if reading.timing.said is not None:
        return say(language, "ask_time", words=words, when=reading.timing.said.text)
    return say(language, "ask_words", words=words)
