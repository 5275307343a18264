"""What a recall without a model hands off: the likeliest hits, or none with the closest quotes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memrecall.agent.phrases import say, say_codes
from memrecall.agent.state import ToolRun
from memrecall.agent.tools.models import MemorySearchResultItem, SearchMemoriesOutput, ToolErrorCode
from memrecall.budget import Limit
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import fill_phrase, read_phrases
from memrecall.text_length import single_line
from memrecall.types import Language

_MOST_ITEMS, _CLOSEST = 4, 3
_LEAST_ITEM = 0.03  # probability of a hit that is handed off beside the best one
LIKELY = 0.5
"""Below this probability of the best hit, the lines before a request are searched too."""

# Nothing is handed off if the best hit is very unlikely; or if it is unlikely, and probably no row
# is an answer. For the authors G and H: after 6 % of the absent questions and 3 % of others; in
# small stores cut from theirs after 42 and 5 %.
_UNLIKELY, _LEAST, _ANSWERED = 0.3, 0.1, 0.7
_UNCALIBRATED = 0.5  # what a relevance is worth as a probability
_LONGEST_QUOTE, _LONGEST_QUERY = 160, 80
_LISTED_WORDS = 4
_ROLES = ("user", "assistant")
# Failures that say nothing about what is stored; other codes only refuse one call.
_FAILURE_CODES = frozenset(
    {
        ToolErrorCode.STORAGE,
        ToolErrorCode.TIMEOUT,
        ToolErrorCode.EMBEDDER,
        ToolErrorCode.NO_PERMISSION,
        ToolErrorCode.INTERNAL,
    }
)

explain = partial(fill_phrase, read_phrases(Path(__file__).with_name("phrases.json")))
"""Return a text in English or Chinese: a thought, a summary or a question."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the searches of a recall have found, the likeliest first."""

    hits: Sequence[MemorySearchResultItem]
    queries: tuple[str, ...]
    failures: tuple[str, ...]  # error codes, in order
    withheld: int  # the number of memories that may not be shown
    successful_searches: int
    answered: float | None = None  # the probability that there is an answer

    @classmethod
    def collect(cls, runs: Sequence[ToolRun]) -> "Findings":
        """Return the results of the likeliest search; what no longer holds comes last."""
        done = [(run, run.output) for run in runs if isinstance(run.output, SearchMemoriesOutput)]
        outputs = [output for run, output in done if run.error is None]
        # Of equal ones the last: it has read a larger window.
        best = max(reversed(outputs), key=_best_of, default=None)
        found = {hit.memory_key: hit for hit in reversed(best.results)} if best else {}
        # An answer whose sources were found would outrank its own evidence.
        kept = {k: hit for k, hit in found.items() if not found.keys() & set(hit.made_from)}
        joined = _join_messages(dict(reversed(kept.items())))
        return cls(
            hits=sorted(joined, key=lambda hit: (is_outdated(hit), -probability_of(hit))),
            queries=tuple(dict.fromkeys(run.arguments["query"] for run, _ in done)),
            failures=tuple(run.error for run in runs if run.error in _FAILURE_CODES),
            withheld=max((output.withheld for output in outputs), default=0),
            successful_searches=len(outputs),
            answered=best.answered if best else None,
        )

    @property
    def best(self) -> float:
        """The highest probability of a hit."""
        return max(map(probability_of, self.hits), default=0.0)


def _best_of(output: SearchMemoriesOutput) -> float:
    return max(map(probability_of, output.results), default=0.0)


def _join_messages(
    found: dict[str, MemorySearchResultItem],
) -> list[MemorySearchResultItem]:
    """Return hits with a memory and a message that states it as one: the likelier of both."""
    for memory in [hit for hit in found.values() if hit.stated_by]:
        for key in sorted(found.keys() & set(memory.stated_by)):
            if memory.memory_key in found:
                pair = found.pop(memory.memory_key), found.pop(key)
                likelier = max(pair, key=probability_of)
                chance = min(sum(map(probability_of, pair)), 1.0)
                found[likelier.memory_key] = likelier.model_copy(update={"probability": chance})
    return list(found.values())


def probability_of(hit: MemorySearchResultItem) -> float:
    """Return the probability that the search gave a hit; by words alone it gives none."""
    return hit.relevance_score * _UNCALIBRATED if hit.probability is None else hit.probability


def is_outdated(hit: MemorySearchResultItem) -> bool:
    """Return True for a message whose memory a model or the user has superseded."""
    return hit.kind == "message" and bool(hit.valid_to)


def build_handoff(
    request: str, language: Language, findings: Findings, limit: Limit | None
) -> dict[str, Any]:
    """Return the handoff for the results of the searches."""
    if not findings.successful_searches:
        return _failure_handoff(language, findings, limit)
    best = findings.best
    is_unanswered = findings.answered is not None and findings.answered < _ANSWERED
    if best < _LEAST or (is_unanswered and best < _UNLIKELY):
        return _absence_handoff(request, language, findings, best)
    return _evidence_handoff(request, language, findings)


def build_unasked_handoff(language: Language) -> dict[str, Any]:
    """Return the handoff for a message that refers to nothing."""
    return _fields(explain(language, "nothing_asked"), explain(language, "summary_nothing_asked"))


def _fields(
    reason: str, summary: str, keys: Sequence[str] = (), confidence: float = 0.0
) -> dict[str, Any]:
    return {
        "reason": reason,
        "search_summary": summary,
        "relevant_memory_keys": list(keys),
        "confidence": round(confidence, 2),
        "needs_more_info": False,
    }


def _evidence_handoff(request: str, language: Language, findings: Findings) -> dict[str, Any]:
    # What was superseded comes last. However likely, it makes the first item no surer.
    best = probability_of(findings.hits[0])
    more = [hit for hit in findings.hits[1:_MOST_ITEMS] if probability_of(hit) >= _LEAST_ITEM]
    items = [findings.hits[0], *more]
    lines = [explain(language, "summary_found", asked=single_line(request, _LONGEST_QUERY))]
    lines += [_quote(language, "outdated" if is_outdated(hit) else "quote", hit) for hit in items]
    count = findings.successful_searches
    searches = explain(language, "once" if count == 1 else "times", count=count)
    keys = [hit.memory_key for hit in items]
    reason = explain(language, "found", count=len(items))
    return _fields(reason, _summarize(language, lines, findings), keys, best) | {
        "reasoning": explain(language, "why", chance=best, searches=searches)
    }


def _absence_handoff(
    request: str, language: Language, findings: Findings, best: float
) -> dict[str, Any]:
    queries = (f"“{single_line(query, _LONGEST_QUERY)}”" for query in findings.queries)
    text = single_line(request, _LONGEST_QUERY)
    phrase = "summary_withheld" if findings.withheld else "summary_not_found"
    listed = explain(language, "and").join(queries) or "-"
    lines = [explain(language, phrase, asked=text, queries=listed)]
    lines += [_quote(language, "closest", hit) for hit in findings.hits[:_CLOSEST]]
    summary = _summarize(language, lines, findings)
    words = [each.word for each in extract_keywords(request, _LISTED_WORDS)]
    asked = explain(language, "and").join(words) or explain(language, "this")
    question = explain(language, "ask_withheld" if findings.withheld else "ask", words=asked)
    reasoning = explain(language, "why_not", count=len(findings.hits)) if findings.hits else None
    return _fields(explain(language, "not_found"), summary, confidence=best) | {
        "needs_more_info": True,
        "follow_up_question": question,
        "reasoning": reasoning,
    }


def _failure_handoff(language: Language, findings: Findings, limit: Limit | None) -> dict[str, Any]:
    """Return the handoff after no search succeeded, which is not "nothing found"."""
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


def _summarize(language: Language, lines: list[str], findings: Findings) -> str:
    if findings.withheld:
        lines = [*lines, say(language, "matches_withheld", count=findings.withheld)]
    if codes := _say_failures(language, findings):
        lines = [*lines, explain(language, "partly_failed", codes=codes)]
    return "\n".join(lines)


def _quote(language: Language, phrase: str, hit: MemorySearchResultItem) -> str:
    preview = hit.passage or hit.content_preview
    summary = "" if preview.startswith(hit.summary) else hit.summary
    text = single_line("\n".join(filter(None, (summary, preview))), _LONGEST_QUOTE)
    since = (hit.valid_to or "")[:10]
    who = _speaker_name(language, hit)
    return explain(language, phrase, when=hit.created_at[:10], who=who, text=text, since=since)


def _speaker_name(language: Language, hit: MemorySearchResultItem) -> str:
    speaker = hit.space.rpartition(", ")[0] if hit.space else hit.speaker or ""
    if speaker and speaker not in _ROLES:
        return speaker
    role = hit.role if hit.role in _ROLES else speaker
    if role in _ROLES:
        return explain(language, role)
    is_stored = hit.kind in ("memory", "knowledge")
    return explain(language, hit.kind if is_stored else "somebody")
