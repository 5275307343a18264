"""The recall prompt played by rules: each turn reads all that happened and decides one step.

Search, widen if nothing fits, read the best with what was said around it, hand off.
"""

from collections.abc import Mapping
from zoneinfo import ZoneInfo

from memrecall.agent.offline.findings import Findings, gather
from memrecall.agent.offline.handoff import hand_off, hand_off_nothing, hand_off_window
from memrecall.agent.offline.judgement import Judgement, judge
from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.offline.phrases import say
from memrecall.agent.offline.request import ParsedRequest, parse_request
from memrecall.agent.offline.searches import (
    SearchPlan,
    meant_in_window,
    must_look_further,
    next_search,
    query_of,
    stored_line,
)
from memrecall.agent.offline.transcript import (
    DETAIL,
    EXPAND,
    HANDOFF,
    KEYWORDS,
    REFUSED,
    SEARCH,
    Transcript,
    read_transcript,
)
from memrecall.agent.offline.vocabulary import QUESTION_MARKERS
from memrecall.model.offline import RuleAnswer, RuleCall, RuleRequest
from memrecall.text.language import STOP_CHARS
from memrecall.text.tokens import is_cjk

MOST_SEARCHES = 5  # in an iteration
IN_A_ROW = 3  # the tool refuses a fourth
ANCHORS = 3
SURE = 0.55  # a confidence that needs no second look at the conversation
HOPELESS = 2  # failures of the store, after which nothing more is tried
BARREN = 2  # searches in a row without a new key, after which others bring none either
# With nothing found at all one more is tried; the loop steers then, and ends the run if it has to
# do so twice.
BARREN_AT_FIRST = 3
_TELLING_CHARACTERS = 4


def decide_recall_turn(request: RuleRequest) -> RuleAnswer:
    """The next step of a recall, decided from the conversation with the loop alone."""
    transcript = read_transcript(request.messages)
    briefing = transcript.briefing
    reading = parse_request(briefing.messages, briefing.now, ZoneInfo(briefing.time_zone))
    turn = _Turn(request, transcript, reading, gather(transcript))
    return turn.decide()


class _Turn:
    """One turn: the request, and what is known at it."""

    def __init__(
        self, request: RuleRequest, transcript: Transcript, reading: ParsedRequest, found: Findings
    ) -> None:
        self._tools = (request.forced,) if request.forced else request.tools
        self._transcript = transcript
        self._reading = reading
        self._found = found
        self._line = meant_in_window(reading)
        quiet = not reading.context_words or is_greeting(reading.text)
        self._asks_nothing = reading.empty and quiet and not _wants_to_know(reading)
        self._judgement: Judgement = judge(reading, found)

    def decide(self) -> RuleAnswer:
        """The first of the possible steps that makes sense now."""
        return (
            self._expand_first()
            or self._pause()
            or self._search()
            or self._read()
            or self._hand_off()
        )

    def _expand_first(self) -> RuleAnswer | None:
        if self._can(EXPAND) and must_look_further(
            self._reading, self._transcript, self._judgement.confidence < SURE
        ):
            return self._expand()
        return None

    def _expand(self) -> RuleAnswer:
        size = self._transcript.briefing.window
        references = self._reading.references
        told = references[0].text if references else self._reading.text[:20]
        thought = say(self._reading.language, "expand", reference=told)
        arguments = {"reason": thought, "current_size": size, "requested_size": 2 * size}
        return _answer(EXPAND, arguments, thought)

    def _pause(self) -> RuleAnswer | None:
        """Do something else after a refused search: a model may have searched before the rules."""
        steps = self._transcript.steps
        if not steps or steps[-1].error != REFUSED or not self._can(KEYWORDS):
            return None
        if self._transcript.refusals > 1:
            return None
        asked = {"query": query_of(self._reading)}
        return _answer(KEYWORDS, asked, say(self._reading.language, "pause"))

    def _search(self) -> RuleAnswer | None:
        transcript = self._transcript
        if not self._can(SEARCH) or self._settled():
            return None
        if len(transcript.searches) >= MOST_SEARCHES or transcript.in_a_row >= IN_A_ROW:
            return None
        fresh = not self._found.candidates and transcript.briefing.iteration == 1
        if transcript.barren >= (BARREN_AT_FIRST if fresh else BARREN):
            return None
        plan = next_search(self._reading, transcript, self._found, self._judgement.abstains)
        return None if plan is None else _answer(SEARCH, plan.arguments, self._explain(plan))

    def _settled(self) -> bool:
        """Whether searching has no use: nothing is asked, all is here, or nothing works."""
        if self._asks_nothing or self._transcript.refusals > 1:
            return True
        broken = self._found.broken
        return "no_permission" in broken or len(broken) >= HOPELESS

    def _explain(self, plan: SearchPlan) -> str:
        reading = self._reading
        phrase = plan.why
        if phrase == "first" and reading.bare and reading.earlier:
            phrase = "first_context"
        words = (*reading.exact, *reading.words) or reading.context_words
        told = say(reading.language, "and").join(dict.fromkeys(words[:5]))
        return say(reading.language, phrase, words=told or query_of(reading)[:40])

    def _read(self) -> RuleAnswer | None:
        if not self._can(DETAIL) or self._transcript.details or self._line is not None:
            return None
        if self._judgement.abstains or not self._judgement.chosen:
            return None
        chosen = [judged.candidate for judged in self._judgement.chosen]
        anchors = chosen[:1] + [c for c in chosen[1:] if c.asks]
        calls = tuple(RuleCall(DETAIL, {"memory_key": c.key}) for c in anchors[:ANCHORS])
        return RuleAnswer(calls=calls, thought=say(self._reading.language, "read"))

    def _hand_off(self) -> RuleAnswer:
        if not self._can(HANDOFF):
            return RuleAnswer(text=say(self._reading.language, "finish"))
        reading, found = self._reading, self._found
        if self._line is not None:
            stored = stored_line(self._line, found.hits)
            arguments = hand_off_window(reading, self._line, stored)
            return _answer(HANDOFF, arguments, say(reading.language, "in_window"))
        if self._asks_nothing and not found.candidates:
            nothing = say(reading.language, "nothing_asked")
            return _answer(HANDOFF, hand_off_nothing(reading), nothing)
        arguments = hand_off(reading, self._transcript, found, self._judgement)
        thought = "finish" if arguments["relevant_memory_keys"] else "give_up"
        return _answer(HANDOFF, arguments, say(reading.language, thought))

    def _can(self, tool: str) -> bool:
        return tool in self._tools


def _wants_to_know(reading: ParsedRequest) -> bool:
    """Whether it is a question after all, of characters that no dictionary knows as words."""
    told = [character for character in reading.text if is_cjk(character)]
    telling = [character for character in told if character not in STOP_CHARS]
    asking = any(pattern.search(reading.text) for pattern in QUESTION_MARKERS)
    return asking and len(telling) >= _TELLING_CHARACTERS and not is_greeting(reading.text)


def _answer(tool: str, arguments: Mapping[str, object], thought: str) -> RuleAnswer:
    kept = {name: value for name, value in arguments.items() if value is not None}
    return RuleAnswer(calls=(RuleCall(tool, kept),), thought=thought)
