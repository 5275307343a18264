"""The policy of a recall without a model: search for the request, hand off what is likely.

Nothing here judges what somebody meant. The search orders and gives probabilities that were fitted
on data. A second, narrower search is not worth its turn: with words of the best hits, on their day,
within the named time or in the named person's own words it brings 0 to 8 of 100 pieces of evidence,
and moves the F1 of what is handed off by 0.02 at most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from memrecall.agent.offline.handoff import (
    LIKELY,
    Findings,
    build_handoff,
    build_unasked_handoff,
    explain,
)
from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.policy import RecallStep
from memrecall.agent.state import KeywordModel, RecallState, ToolRun, Window
from memrecall.agent.tools import EXPANSION, HANDOFF, SEARCH
from memrecall.agent.tools.models import SearchMemoriesInput, ToolErrorCode
from memrecall.budget import Budget, Limit
from memrecall.errors import ModelFailed
from memrecall.messages import ConversationMessage, strip_markers
from memrecall.model import protocol
from memrecall.model.prompts import OFFLINE_FAMILY
from memrecall.text.keywords import extract_keywords
from memrecall.text_length import single_line
from memrecall.types import Language, Role

_LONGEST_REQUEST = 2_000  # characters in which words are counted
_LONGEST_QUERY = 980
_LIMIT = 10
_MAX_FAILURES = 2  # of the store
# Without an embedder, or with vectors of another one, words still match. The store is tried twice.
_WORDS_MAY_DO = frozenset({ToolErrorCode.EMBEDDER, ToolErrorCode.REFUSED, ToolErrorCode.STORAGE})


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
    def current_runs(self) -> tuple[ToolRun, ...]:
        """The tool calls of this iteration."""
        return self.runs[self.earlier_runs :]

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
        try:
            return decide_step(self._describe_situation(last))
        finally:
            self._budget.spend_step(time.monotonic() - started)

    def can_retry(self, error: ModelFailed) -> bool:
        """Return False: nothing fails here that another attempt could mend."""
        return False

    def _describe_situation(self, last: Limit | None) -> Situation:
        state = self._state
        size, request = state.characters_per_message, state.conversation.request
        positions = (n for n, message in enumerate(state.shown) if message is request)
        # A request that is older than the window has no messages before it.
        earlier = state.shown[: next(positions, 0)]
        return Situation(
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


def decide_step(situation: Situation) -> RecallStep:
    """Return the next step of a recall: a larger window for a follow-up, a search, the handoff."""
    language, findings = situation.language, Findings.collect(situation.runs)
    if is_greeting(situation.request) and not findings.hits:
        arguments = build_unasked_handoff(language)
        return _call(HANDOFF, arguments, explain(language, "nothing_asked"))
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
    searches = [run for run in situation.current_runs if run.tool == SEARCH]
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
