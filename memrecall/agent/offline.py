"""The policy of a recall without a model: search for the request, hand off what is likely.

Nothing here judges what somebody meant. The search orders and gives probabilities that were fitted
on data. A second, narrower search is not worth its turn: with words of the best hits, on their day,
within the named time or in the named person's own words it brings 0 to 8 of 100 pieces of evidence,
and moves the F1 of what is handed off by 0.02 at most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from memrecall.agent.conversation import is_greeting
from memrecall.agent.phrases import say, say_codes
from memrecall.agent.policy import RecallStep
from memrecall.agent.state import KeywordModel, RecallState, ToolRun, Window
from memrecall.agent.tools import EXPANSION, HANDOFF, SEARCH
from memrecall.agent.tools.models import (
    MemorySearchResultItem,
    SearchMemoriesInput,
    SearchMemoriesOutput,
    ToolErrorCode,
)
from memrecall.budget import Budget, Limit
from memrecall.errors import ModelFailed
from memrecall.messages import ConversationMessage, strip_markers
from memrecall.model import protocol
from memrecall.model.prompts import OFFLINE_FAMILY
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import fill_phrase, read_phrases
from memrecall.text_length import single_line
from memrecall.types import Language, Role

_LONGEST_REQUEST = 2_000  # characters in which words are counted
_LONGEST_QUERY = 980
_LIMIT = 10
_MAX_FAILURES = 2  # of the store
# Without an embedder, or with vectors of another one, words still match. The store is tried twice.
_WORDS_MAY_DO = frozenset({ToolErrorCode.EMBEDDER, ToolErrorCode.REFUSED, ToolErrorCode.STORAGE})
_MOST_ITEMS, _CLOSEST = 4, 3
_LEAST_ITEM = 0.03  # the lowest probability of a hit that is handed off in addition to the best one
LIKELY = 0.5
"""Below this probability of the best hit, the lines before a request are searched too."""

# Nothing is handed off if the best hit is very unlikely; or if it is unlikely, and probably no row
# is an answer. For the authors G and H: after 6 % of the absent questions and 3 % of others; in
# small stores cut from theirs after 42 and 5 %.
_UNLIKELY, _LEAST, _ANSWERED = 0.3, 0.1, 0.7
_UNCALIBRATED = 0.5  # what a relevance is worth as a probability
_LONGEST_QUOTE, _QUOTED_QUERY = 160, 80
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

explain = partial(fill_phrase, read_phrases(Path(__file__).with_name("offline.json")))
"""Return a text in English or Chinese: a thought, a summary or a question."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The part of a recall's state that decides its next step."""

    language: Language
    request: str
    earlier: tuple[ConversationMessage, ...]  # messages of the window before the request
    window: Window
    runs: tuple[ToolRun, ...] = ()
    earlier_runs: int = 0  # how many of them belong to earlier iterations
    last: Limit | None = None  # the limit after which only a handoff is allowed

    @property
    def is_follow_up(self) -> bool:
        """Whether the request says nothing without the lines before it: "and then?"."""
        words = extract_keywords(strip_markers(self.request[:_LONGEST_REQUEST]), 1)
        return bool(self.earlier) and not words

    def query(self, *, with_earlier: bool) -> str:
        """Return the text to search for, whole: embedders are trained on sentences."""
        earlier = [message.text for message in self.earlier] if with_earlier else []
        texts = (" ".join(strip_markers(text).split()) for text in (*earlier, self.request))
        return "\n".join(filter(None, texts))[-_LONGEST_QUERY:]  # the latest words matter most


class OfflinePolicy:
    """Decides a recall's steps without a model."""

    name = OFFLINE_FAMILY
    keyword_model: KeywordModel | None = None

    def __init__(self, state: RecallState, budget: Budget) -> None:
        self._state = state
        self._budget = budget
        self._earlier_runs = 0

    def begin_iteration(self) -> str:
        """Remember how many tool calls earlier iterations made."""
        self._earlier_runs = len(self._state.runs)
        return ""

    async def decide(self, last: Limit | None) -> RecallStep:
        """Return the next step."""
        started = time.monotonic()
        state = self._state
        size, request = state.characters_per_message, state.conversation.request
        positions = (n for n, message in enumerate(state.shown) if message is request)
        # A request that is older than the window has no messages before it.
        earlier = state.shown[: next(positions, 0)]
        situation = Situation(
            language=state.language,
            request=request.text[:size],
            earlier=tuple(
                replace(message, text=message.text[:size])
                for message in earlier
                if message.role in (Role.USER, Role.ASSISTANT, Role.OTHER)
            ),
            window=state.window,
            runs=tuple(state.runs),
            earlier_runs=self._earlier_runs,
            last=last,
        )
        try:
            return decide_step(situation)
        finally:
            self._budget.spend_step(time.monotonic() - started)

    def can_retry(self, error: ModelFailed) -> bool:
        """Return False: nothing fails here that another attempt could mend."""
        return False


def decide_step(situation: Situation) -> RecallStep:
    """Return the next step of a recall: a larger window for a follow-up, a search, the handoff."""
    language, findings = situation.language, Findings.collect(situation.runs)
    if is_greeting(situation.request) and not findings.hits:
        thought = explain(language, "nothing_asked")
        return _call(HANDOFF, _fields(thought, explain(language, "summary_nothing_asked")), thought)
    if situation.last is None:
        step = _expand(situation) or _search(situation, findings)
        if step is not None:
            return step
    arguments = build_handoff(situation.request, language, findings, situation.last)
    phrase = "finish" if arguments["relevant_memory_keys"] else "give_up"
    return _call(HANDOFF, arguments, explain(language, phrase))


def _expand(situation: Situation) -> RecallStep | None:
    """Return the request for a larger window, once: a follow-up is searched by its conversation."""
    window = situation.window
    if not (situation.is_follow_up and window.can_grow and window.iteration == 1):
        return None
    if situation.runs:  # it was refused
        return None
    thought = explain(situation.language, "expand", request=single_line(situation.request, 40))
    size = window.shown
    arguments = {"reason": thought, "current_size": size, "requested_size": 2 * size}
    return _call(EXPANSION, arguments, thought)


def _search(situation: Situation, findings: Findings) -> RecallStep | None:
    """Return the search for the request, without filters; after a failure that by words.

    What finds nothing likely alone may depend on the lines before it: "and for Tom?".
    """
    failures = findings.failures
    if ToolErrorCode.NO_PERMISSION in failures or len(failures) >= _MAX_FAILURES:
        return None
    searches = [run for run in situation.runs[situation.earlier_runs :] if run.tool == SEARCH]
    mode, phrase, with_earlier = "hybrid", "first", situation.is_follow_up
    if searches and searches[-1].error in _WORDS_MAY_DO:
        mode, phrase = "keyword", "words_only"
    elif searches:
        if not situation.earlier or findings.best >= LIKELY:
            return None
        with_earlier = True
    if phrase == "first" and with_earlier:
        phrase = "first_context"
    arguments: dict[str, Any] = {
        "query": situation.query(with_earlier=with_earlier),
        "search_mode": mode,
        "limit": _LIMIT,
        "min_relevance_score": 0.0,
    }
    tried = [run.arguments for run in situation.runs if run.tool == SEARCH]
    if not arguments["query"]:
        return None
    if SearchMemoriesInput(**arguments).model_dump(mode="json", exclude_none=True) in tried:
        return None
    asked = single_line(situation.request, 40)
    return _call(SEARCH, arguments, explain(situation.language, phrase, request=asked))


def _call(tool: str, arguments: Mapping[str, object], thought: str) -> RecallStep:
    values = {name: value for name, value in arguments.items() if value is not None}
    text = json.dumps(values, ensure_ascii=False, sort_keys=True)
    # The loop gives the call an id.
    return RecallStep([protocol.FunctionCall(id="", name=tool, arguments=text)], thought=thought)


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
    def collect(cls, runs: Sequence[ToolRun]) -> Findings:
        """Return the results of the likeliest search; what no longer holds comes last."""
        done = [(run, run.output) for run in runs if isinstance(run.output, SearchMemoriesOutput)]
        outputs = [output for run, output in done if run.error is None]
        # Of equal ones the last: it has read a larger window.
        best = max(
            reversed(outputs), key=lambda output: _best_probability(output.results), default=None
        )
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
        return _best_probability(self.hits)


def _best_probability(hits: Iterable[MemorySearchResultItem]) -> float:
    return max(map(probability_of, hits), default=0.0)


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
    lines = [explain(language, "summary_found", asked=single_line(request, _QUOTED_QUERY))]
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
    queries = (f"“{single_line(query, _QUOTED_QUERY)}”" for query in findings.queries)
    text = single_line(request, _QUOTED_QUERY)
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
    codes = say_codes(language, *dict.fromkeys(findings.failures))
    if codes:
        summary = say(language, "end_failed", reason=codes)
    elif limit is not None:
        summary = explain(language, "summary_limited", limit=say_codes(language, limit))
    else:
        summary = explain(language, "summary_unsearched")
    return _fields(explain(language, "failed" if codes else "unsearched"), summary)


def _summarize(language: Language, lines: list[str], findings: Findings) -> str:
    if findings.withheld:
        lines = [*lines, say(language, "matches_withheld", count=findings.withheld)]
    if codes := say_codes(language, *dict.fromkeys(findings.failures)):
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
