"""Arguments of the handoff: keys, a summary with quotations, a confidence, a question."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from memrecall.agent.offline.findings import Candidate, Findings, Situation
from memrecall.agent.offline.request import ParsedRequest, WindowMessage
from memrecall.agent.offline.selection import Selection
from memrecall.agent.phrases import say, say_codes
from memrecall.budget import Limit
from memrecall.text.language import fill_phrase, read_phrases
from memrecall.text.tokens import word_coverage
from memrecall.text_length import single_line
from memrecall.types import Language

_MAX_QUOTE_LENGTH = 160
_MAX_QUERY_LENGTH = 80
_MAX_LISTED_WORDS = 4
_WINDOW_CONFIDENCE = 0.8
_ROLES = ("user", "assistant")

explain = partial(fill_phrase, read_phrases(Path(__file__).with_name("phrases.json")))
"""Return a text of the rules in English or Chinese: a thought, a summary or a question."""


def build_handoff(
    request: ParsedRequest, situation: Situation, findings: Findings, selection: Selection
) -> dict[str, Any]:
    """Return the handoff for the results of the searches."""
    if not findings.successful_searches and not findings.candidates:
        return _failure_handoff(request, findings, situation.last)
    if selection.abstains:
        return _not_found_handoff(request, situation, findings, selection)
    return _evidence_handoff(request, findings, selection)


def build_window_handoff(
    request: ParsedRequest, message: WindowMessage, stored: Sequence[Candidate]
) -> dict[str, Any]:
    """Return the handoff for a reference to a message of the conversation itself."""
    language = request.language
    speaker = explain(language, message.role if message.role in _ROLES else "somebody")
    text = single_line(message.text, _MAX_QUOTE_LENGTH)
    summary = explain(language, "summary_in_window", who=speaker, text=text)
    confidence = _WINDOW_CONFIDENCE if stored else 0.0
    return _fields(explain(language, "in_window"), summary, stored, confidence)


def build_empty_handoff(request: ParsedRequest) -> dict[str, Any]:
    """Return the handoff for a message that refers to nothing."""
    language = request.language
    return _fields(explain(language, "nothing_asked"), explain(language, "summary_nothing_asked"))


def _fields(
    reason: str, summary: str, evidence: Iterable[Candidate] = (), confidence: float = 0.0
) -> dict[str, Any]:
    return {
        "reason": reason,
        "search_summary": summary,
        "relevant_memory_keys": [candidate.key for candidate in evidence],
        "confidence": confidence,
        "needs_more_info": False,
    }


def _evidence_handoff(
    request: ParsedRequest, findings: Findings, selection: Selection
) -> dict[str, Any]:
    language = request.language
    candidates = list(selection.candidates)
    lines = [explain(language, "summary_found", asked=single_line(request.text, _MAX_QUERY_LENGTH))]
    lines += [
        _quote(request, "outdated", each, since=each.valid_to[:10])
        if each.is_outdated
        else _quote(request, "quote", each)
        for each in candidates
    ]
    summary = _summarize(lines, request, findings)
    reason = explain(language, "found", count=len(candidates))
    reasoning = _explain_selection(request, findings, candidates)
    return _fields(reason, summary, candidates, selection.confidence) | {"reasoning": reasoning}


def _not_found_handoff(
    request: ParsedRequest, situation: Situation, findings: Findings, selection: Selection
) -> dict[str, Any]:
    language = request.language
    queries = dict.fromkeys(
        f"“{single_line(run.arguments['query'], _MAX_QUERY_LENGTH)}”" for run in situation.searches
    )
    query_list = explain(language, "and").join(queries) or "-"
    text = single_line(request.text, _MAX_QUERY_LENGTH)
    phrase = "summary_withheld" if findings.withheld else "summary_not_found"
    lines = [explain(language, phrase, asked=text, queries=query_list)]
    lines += [_quote(request, "closest", hit) for hit in selection.candidates[:1]]
    summary = _summarize(lines, request, findings)
    confidence = round(min(selection.confidence / 2, 0.2), 2)
    return _fields(explain(language, "not_found"), summary, confidence=confidence) | {
        "needs_more_info": True,
        "follow_up_question": explain(language, "ask_withheld")
        if findings.withheld
        else _follow_up_question(request),
        "reasoning": explain(language, "why_not", count=len(findings.hits))
        if findings.hits
        else None,
    }


def _failure_handoff(
    request: ParsedRequest, findings: Findings, limit: Limit | None
) -> dict[str, Any]:
    """Return the handoff after no search succeeded, which is not "nothing found"."""
    language = request.language
    codes = _say_failures(language, findings)
    if codes:
        summary = say(language, "end_failed", reason=codes)
    elif limit is not None:
        summary = explain(language, "summary_limited", limit=say_codes(language, limit))
    else:
        summary = explain(language, "summary_unsearched")
    return _fields(explain(language, "failed" if codes else "unsearched"), summary)


def _say_failures(language: Language, findings: Findings) -> str:
    return say_codes(language, *dict.fromkeys(findings.failures))


def _summarize(lines: list[str], request: ParsedRequest, findings: Findings) -> str:
    language, count = request.language, findings.withheld
    codes = _say_failures(language, findings)
    lines = [*lines, say(language, "matches_withheld", count=count)] if count else lines
    return "\n".join([*lines, explain(language, "partly_failed", codes=codes)] if codes else lines)


def _quote(request: ParsedRequest, phrase: str, hit: Candidate, **values: str) -> str:
    text = single_line(hit.text, _MAX_QUOTE_LENGTH)
    who = _speaker_name(request, hit)
    return explain(request.language, phrase, when=hit.day, who=who, text=text, **values)


def _speaker_name(request: ParsedRequest, hit: Candidate) -> str:
    if hit.speaker and hit.speaker not in _ROLES:
        return hit.speaker
    role = hit.role if hit.role in _ROLES else hit.speaker
    if role in _ROLES:
        return explain(request.language, role)
    is_stored = hit.kind in ("memory", "knowledge")
    return explain(request.language, hit.kind if is_stored else "somebody")


def _explain_selection(
    request: ParsedRequest, findings: Findings, candidates: list[Candidate]
) -> str:
    language = request.language
    text = " ".join(candidate.text for candidate in candidates)
    shared = [term for term in request.search_terms if word_coverage([term], text) >= 1]
    words = explain(language, "and").join(dict.fromkeys(shared[:_MAX_LISTED_WORDS]))
    count = findings.successful_searches
    return explain(
        language,
        "why" if words else "why_meaning",
        words=words,
        score=max(candidate.score for candidate in candidates),
        searches=explain(language, "once" if count == 1 else "times", count=count),
    )


def _follow_up_question(request: ParsedRequest) -> str:
    language = request.language
    terms = (request.exact_terms or request.words)[:_MAX_LISTED_WORDS]
    if not terms and request.references:
        return explain(language, "ask_bare", reference=request.references[0].text)
    words = explain(language, "and").join(terms) or explain(language, "this")
    if request.times.message_span is not None:
        return explain(language, "ask_time", words=words, when=request.times.message_span.text)
    return explain(language, "ask_words", words=words)
