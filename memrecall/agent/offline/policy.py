"""The rule of the recall prompt, which decides one step per turn from the transcript.

It searches, widens the search if nothing fits, reads the best hits with their context, hands off.
"""

from collections.abc import Mapping
from zoneinfo import ZoneInfo

from memrecall.agent.offline.handoff import (
    build_empty_handoff,
    build_handoff,
    build_window_handoff,
)
from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.offline.phrases import say
from memrecall.agent.offline.request import ParsedRequest, parse_request
from memrecall.agent.offline.searches import (
    SearchPlan,
    build_query,
    find_in_window,
    find_stored_copies,
    needs_larger_window,
    plan_next_search,
)
from memrecall.agent.offline.selection import select_evidence
from memrecall.agent.offline.transcript import (
    DETAIL,
    EXPAND,
    HANDOFF,
    KEYWORDS,
    SEARCH,
    TOO_MANY_SEARCHES,
    Transcript,
    collect_findings,
    read_transcript,
)
from memrecall.agent.offline.vocabulary import QUESTION_MARKERS, matches_any
from memrecall.model.offline import RuleAnswer, RuleCall, RuleRequest
from memrecall.text.language import STOP_CHARS
from memrecall.text.tokens import is_cjk

_MAX_SEARCHES = 5  # in an iteration
_MAX_CONSECUTIVE_SEARCHES = 3  # the tool refuses a fourth
_MAX_DETAILS = 3
_SURE = 0.55  # with this confidence no larger window is needed
_MAX_FAILURES = 2  # of the store
# Searches without a new key, after which others find nothing either. With no candidate at all one
# more is tried: then the loop steers, and it ends the recall if it has to do so twice.
_MAX_FRUITLESS_SEARCHES = 2
_MAX_FRUITLESS_AT_START = 3
_MIN_QUESTION_CHARACTERS = 4


def decide_recall_turn(request: RuleRequest) -> RuleAnswer:
    """Answer the prompt `recall` with the next tool call."""
    transcript = read_transcript(request.messages)
    tools = (request.forced,) if request.forced else request.tools
    return _RecallTurn(tools, transcript).decide()


class _RecallTurn:
    def __init__(self, tools: tuple[str, ...], transcript: Transcript) -> None:
        briefing = transcript.briefing
        zone = ZoneInfo(briefing.time_zone)
        self._tools = tools
        self._transcript = transcript
        self._request = parse_request(briefing.messages, briefing.now, zone)
        self._findings = collect_findings(transcript)
        self._selection = select_evidence(self._request, self._findings)
        self._window_message = find_in_window(self._request)
        self._refers_to_nothing = _refers_to_nothing(self._request)

    def decide(self) -> RuleAnswer:
        """Return the first step that applies."""
        return (
            self._expand()
            or self._extract_keywords()
            or self._search()
            or self._read_details()
            or self._hand_off()
        )

    def _expand(self) -> RuleAnswer | None:
        request = self._request
        is_unsure = self._selection.confidence < _SURE
        if EXPAND not in self._tools or not needs_larger_window(
            request, self._transcript, is_unsure
        ):
            return None
        size = self._transcript.briefing.window
        reference = request.references[0].text if request.references else request.text[:20]
        thought = say(request.language, "expand", reference=reference)
        arguments = {"reason": thought, "current_size": size, "requested_size": 2 * size}
        return _call(EXPAND, arguments, thought)

    def _extract_keywords(self) -> RuleAnswer | None:
        """Make another call after a refused search: a model may have searched before the rules."""
        steps = self._transcript.steps
        if not steps or steps[-1].error != TOO_MANY_SEARCHES or KEYWORDS not in self._tools:
            return None
        if self._transcript.refused_searches > 1:
            return None
        query = build_query(self._request)
        return _call(KEYWORDS, {"query": query}, say(self._request.language, "pause"))

    def _search(self) -> RuleAnswer | None:
        transcript, findings = self._transcript, self._findings
        if SEARCH not in self._tools or self._cannot_profit_from_search():
            return None
        is_start = not findings.candidates and transcript.briefing.iteration == 1
        fruitless_limit = _MAX_FRUITLESS_AT_START if is_start else _MAX_FRUITLESS_SEARCHES
        if (
            len(transcript.searches) >= _MAX_SEARCHES
            or transcript.consecutive_searches >= _MAX_CONSECUTIVE_SEARCHES
            or transcript.fruitless_searches >= fruitless_limit
        ):
            return None
        plan = plan_next_search(self._request, transcript, findings, self._selection.abstains)
        return None if plan is None else _call(SEARCH, plan.arguments, self._explain(plan))

    def _cannot_profit_from_search(self) -> bool:
        if self._refers_to_nothing or self._transcript.refused_searches > 1:
            return True
        failures = self._findings.failures
        return "no_permission" in failures or len(failures) >= _MAX_FAILURES

    def _explain(self, plan: SearchPlan) -> str:
        request = self._request
        uses_context = plan.phrase == "first" and request.is_bare and request.earlier
        phrase = "first_context" if uses_context else plan.phrase
        words = request.search_terms or request.context_words
        listed = say(request.language, "and").join(dict.fromkeys(words[:5]))
        return say(request.language, phrase, words=listed or build_query(request)[:40])

    def _read_details(self) -> RuleAnswer | None:
        if DETAIL not in self._tools or self._transcript.details or self._window_message:
            return None
        candidates = self._selection.candidates
        if self._selection.abstains or not candidates:
            return None
        # The message after a question may be its answer.
        anchors = [*candidates[:1], *(c for c in candidates[1:] if c.is_question)]
        calls = tuple(RuleCall(DETAIL, {"memory_key": c.key}) for c in anchors[:_MAX_DETAILS])
        return RuleAnswer(calls=calls, thought=say(self._request.language, "read"))

    def _hand_off(self) -> RuleAnswer:
        request, findings = self._request, self._findings
        if HANDOFF not in self._tools:
            return RuleAnswer(text=say(request.language, "finish"))
        if self._window_message is not None:
            stored = find_stored_copies(self._window_message, findings.hits)
            arguments = build_window_handoff(request, self._window_message, stored)
            phrase = "in_window"
        elif self._refers_to_nothing and not findings.candidates:
            arguments = build_empty_handoff(request)
            phrase = "nothing_asked"
        else:
            arguments = build_handoff(request, self._transcript, findings, self._selection)
            phrase = "finish" if arguments["relevant_memory_keys"] else "give_up"
        return _call(HANDOFF, arguments, say(request.language, phrase))


def _refers_to_nothing(request: ParsedRequest) -> bool:
    if not request.is_empty or (request.context_words and not is_greeting(request.text)):
        return False
    return not _is_unsegmented_question(request)


def _is_unsegmented_question(request: ParsedRequest) -> bool:
    """Return True for a question whose characters the dictionary does not know as words."""
    characters = [c for c in request.text if is_cjk(c) and c not in STOP_CHARS]
    is_long_enough = len(characters) >= _MIN_QUESTION_CHARACTERS
    is_question = matches_any(request.text, QUESTION_MARKERS)
    return is_question and is_long_enough and not is_greeting(request.text)


def _call(tool: str, arguments: Mapping[str, object], thought: str) -> RuleAnswer:
    values = {name: value for name, value in arguments.items() if value is not None}
    return RuleAnswer(calls=(RuleCall(tool, values),), thought=thought)
