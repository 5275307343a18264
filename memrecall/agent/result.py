"""The result of a recall, and its trace."""

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field, model_validator

from memrecall.agent.phrases import say, say_codes
from memrecall.agent.trace import Observer, StartEvent, TraceEvent
from memrecall.search.request import Kind
from memrecall.text_length import single_line
from memrecall.types import Doubt, Language, format_time

_MAX_WORDS = 1_000  # characters
_SURE = 0.7  # the lowest probability of what is sure
_MAX_QUOTES, _LONGEST_QUOTE = 3, 160  # of the messages of an unchecked memory


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of a finished recall."""

    trace_id: str
    started_at: datetime
    events: tuple[TraceEvent, ...]

    @property
    def start(self) -> StartEvent:
        """The start event; an empty one if the trace has none."""
        return next((e for e in self.events if isinstance(e, StartEvent)), StartEvent())

    def as_dict(self) -> dict[str, Any]:
        """Return the trace as one JSON object."""
        return {
            "trace_id": self.trace_id,
            "started_at": format_time(self.started_at),
            "events": [event.as_dict() for event in self.events],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Trace":
        """Return the trace of a stored object."""
        return cls(
            values["trace_id"],
            datetime.fromisoformat(values["started_at"]),
            tuple(TraceEvent.from_dict(event) for event in values["events"]),
        )

    def fixed(self) -> dict[str, Any]:
        """Return the trace without its id and times, which differ between equal runs."""
        events = [event.as_dict() for event in self.events]
        for event in events:
            event["at"] = 0.0
            for name in ("seconds", "usage"):
                event.pop(name, None)
        return {"events": events}

    def _repr_html_(self) -> str:
        from memrecall.agent.views import trace_html

        return trace_html(self)


@dataclass(slots=True)
class Recorder:
    """Records a trace while the recall runs, and passes each event to the observers."""

    observers: tuple[Observer | None, ...] = ()
    trace_id: str = field(default_factory=lambda: f"tr_{secrets.token_hex(8)}")
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    iteration: int = 1
    turn: int = 0
    _events: list[TraceEvent] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    def add(self, event: TraceEvent) -> None:
        """Record an event with the current time, iteration and turn."""
        event.at = time.monotonic() - self._start
        event.iteration, event.turn = self.iteration, self.turn
        self._events.append(event)
        for observe in filter(None, self.observers):
            observe(event)

    def finish(self) -> Trace:
        """Return the trace of the events so far."""
        return Trace(self.trace_id, self.started_at, tuple(self._events))


class StopReason(StrEnum):
    """Why a recall ended. All but `HANDOFF` end in a handoff that the code forced or wrote."""

    HANDOFF = "handoff"
    ITERATIONS = "iterations"
    MODEL_CALLS = "model_calls"
    TOOL_CALLS = "tool_calls"
    TOKENS = "tokens"
    SECONDS = "seconds"
    OFF_TASK = "off_task"  # the model did something else, although it was corrected
    REFUSAL = "refusal"
    TRUNCATED_ANSWER = "truncated_answer"
    NO_TOOL_SUPPORT = "no_tool_support"
    MODEL_FAILED = "model_failed"
    STORAGE_FAILED = "storage_failed"
    NOTHING_STORED = "nothing_stored"
    CANCELLED = "cancelled"
    # Names of earlier versions, which stay for one version.
    NO_OLDER_MESSAGES = OFF_TASK
    TEXT_ANSWER = OFF_TASK
    SILENCE = OFF_TASK
    REPEATED_SEARCH = OFF_TASK
    BAD_CALLS = OFF_TASK
    LEAKED_CALL = NO_TOOL_SUPPORT
    NO_REQUEST = HANDOFF

    @classmethod
    def _missing_(cls, value: object) -> "StopReason | None":
        return cls.__members__.get(str(value).upper())


class Certainty(StrEnum):
    """How likely a recall, or an item of it, is what was meant."""

    SURE = "sure"
    POSSIBLE = "possible"
    NONE = "none"  # only of a recall: nothing is handed off

    @classmethod
    def from_probability(cls, probability: float | None) -> "Certainty":
        """Return `SURE` for at least 0.7; `POSSIBLE` for less, and for an unknown probability."""
        return cls.POSSIBLE if probability is None or probability < _SURE else cls.SURE


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class RecallHandoff(_FrozenModel):
    """The handoff: the fields of `HandoffInput`, and the message written from them."""

    reason: str
    search_summary: str
    relevant_memory_keys: list[str]
    confidence: float
    needs_more_info: bool
    follow_up_question: str | None
    reasoning: str | None
    iteration_used: int
    context_window_used: int
    success: bool
    message: str
    task_completed: bool = True


class Nearby(_FrozenModel):
    """A message just before or after another one, or a source of a memory."""

    memory_key: str
    speaker: str
    ts: datetime
    content: str


class ResolvedTime(_FrozenModel):
    """A time expression of a content, resolved to dates."""

    words: str
    start: datetime | None
    end: datetime | None


class RecalledMemory(_FrozenModel):
    """A memory or message that was handed off, with its context."""

    memory_key: str
    kind: Kind
    memory_type: str
    summary: str
    content: str
    speaker: str | None
    role: str | None
    ts: datetime
    session_id: str | None
    relevance_score: float | None  # None: shown next to a hit, not a search result
    probability: float | None = None  # that it is evidence, in the first search that returned it
    certainty: Certainty = Certainty.POSSIBLE
    why: dict[str, float] | None = None
    valid_to: datetime | None = None
    times: list[ResolvedTime] = []
    before: list[Nearby] = []
    after: list[Nearby] = []
    sources: list[Nearby] = []
    made_from: list[str] = []  # keys that an assistant's answer is based on
    claimed_by: str | None = None  # the origin of an unconfirmed claim
    conflicts_with: list[str] = []  # keys of what the user said, and the claim contradicts
    truncated: bool = False  # the content was too long and only its beginning is stored
    checked: bool = True  # False: a model's fact that its messages do not confirm
    doubts: list[Doubt] = []  # the parts that they do not confirm
    space: str | None = None  # that it belongs to, if it is shared
    author: str | None = None  # the member of the space who wrote it

    @property
    def by(self) -> str:
        """Who said it: the speaker, role or only source; "knowledge" of an entry; "" if unknown."""
        sources = {source.speaker for source in self.sources}
        unknown = self.kind if self.kind == "knowledge" else ""  # of the agent, said by nobody
        return self.speaker or self.role or (sources.pop() if len(sources) == 1 else unknown)

    def can_be_sure(self, now: datetime) -> bool:
        """Return False for a fact that its messages do not confirm, and for what has ended."""
        return self.checked and (self.valid_to is None or self.valid_to > now)

    def describe_certainty(self, language: Language) -> dict[str, str]:
        """Return the fields that tell a model of a possible memory; none for sure ones.

        Beside a fact that its messages do not confirm, these are quoted.
        """
        if self.certainty is Certainty.SURE:
            return {}
        return {"certainty": say(language, "possibly")} | self.describe_doubts(language)

    def describe_doubts(self, language: Language) -> dict[str, str]:
        """Return the field that quotes the messages of an unchecked fact; none for other items."""
        if self.checked:
            return {}
        texts = (source.content for source in self.sources[:_MAX_QUOTES])
        quotes = " ".join(f"“{single_line(text, _LONGEST_QUOTE)}”" for text in texts)
        return {"unchecked": say(language, "unchecked", quotes=quotes or "-")}

    def describe_conflict(self, language: Language) -> dict[str, str]:
        """Return the fields that tell a model of an unconfirmed claim; none for other memories."""
        keys = ", ".join(self.conflicts_with)
        if self.claimed_by is None:
            return {"conflicts_with": keys} if keys else {}
        claim = say(language, "claimed_by", origin=say_codes(language, self.claimed_by))
        return {"unconfirmed": claim, "conflicts_with": keys}


class QueryTried(_FrozenModel):
    """A search of the recall and its results."""

    arguments: dict[str, Any]
    total_found: int
    returned: int
    new_keys: int
    keys: list[str]  # best first
    call: int = Field(default=0, exclude=True)  # its number among the calls of a running recall


def words_about(key: str, searches: Iterable[QueryTried], request: str) -> list[str]:
    """Return what a key was recalled for: the last query that found it, else the request.

    The part that is shown of a long content is centred on it.
    """
    queries = [each.arguments["query"] for each in searches if key in each.keys]
    return [str((queries or [request])[-1])[:_MAX_WORDS]]


def joint_probability(memories: list[RecalledMemory]) -> float:
    """Return how likely it is that one of the items is what was meant."""
    return min(1.0, sum(memory.probability or 0.0 for memory in memories))


class RecallResult(_FrozenModel):
    """One recall: the handoff, its evidence, and the trace."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    handoff: RecallHandoff
    memories: list[RecalledMemory]
    closest: list[RecalledMemory] = []  # if nothing is handed off: what came closest
    confidence: float
    abstained: bool
    judged: bool  # False: a limit or a failure ended the recall before the agent judged
    stop_reason: StopReason
    problem: str | None = None
    iterations: int
    windows: list[int]
    usage: dict[str, int | float]
    model: str
    language: Language
    now: datetime
    times: list[ResolvedTime] = []
    queries: list[QueryTried] = []
    missing: list[str] = []  # words of the request that no evidence contains
    keys_seen: list[str] = []
    keys_dropped: list[str] = []  # the first ones
    keys_dropped_unlisted: int = Field(default=0, exclude=True)  # how many more were dropped
    withheld: int = 0
    degraded: list[str] = []
    other_projects: list[str] = []  # in which something fits, if nothing here surely does
    fallback: str | None = None
    # A lambda has no annotation, so that the JSON schema is the trace's.
    trace: Annotated[Trace, PlainSerializer(lambda trace: trace.as_dict())]

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "RecallResult":
        """Return the result of a stored object; raise if a field is missing or invalid."""
        return cls.model_validate({**fields, "trace": Trace.from_dict(fields["trace"])})

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know decorated properties
    @property
    def certainty(self) -> Certainty:
        """How certain the recall is; `NONE` if nothing is handed off."""
        if not self.memories:
            return Certainty.NONE
        if not self.memories[0].can_be_sure(self.now):
            return Certainty.POSSIBLE
        return Certainty.from_probability(self.confidence)

    @model_validator(mode="after")
    def _set_certainties(self) -> Self:
        """Make the first item as certain as the recall: the confidence is about it.

        What cannot be sure is possible, however likely it is that it was meant.
        """
        if self.certainty is Certainty.SURE:
            self.memories[0] = self.memories[0].model_copy(update={"certainty": Certainty.SURE})
        for memories in (self.memories, self.closest):
            for at, memory in enumerate(memories):
                if not memory.can_be_sure(self.now):
                    memories[at] = memory.model_copy(update={"certainty": Certainty.POSSIBLE})
        return self

    def sure_memories(self) -> list[RecalledMemory]:
        """Return the items that are sure, else the items of the session that is sure as a whole.

        One of them is meant, so their probabilities add up: nobody has to tell the question of a
        decision from its answer to be sure where it was taken.
        """
        able = [memory for memory in self.memories if memory.can_be_sure(self.now)]
        if sure := [memory for memory in able if memory.certainty is Certainty.SURE]:
            return sure
        sessions: dict[str, list[RecalledMemory]] = {}
        for memory in able:
            if memory.session_id is not None:
                sessions.setdefault(memory.session_id, []).append(memory)
        best = max(sessions.values(), key=joint_probability, default=[])
        is_sure = Certainty.from_probability(joint_probability(best)) is Certainty.SURE
        return best if is_sure else []

    @property
    def has_withheld_contents(self) -> bool:
        """True for a stored trace without contents: the recall could see sensitive memories."""
        return bool(self.memories) and not any(memory.content for memory in self.memories)

    def words_about(self, key: str) -> list[str]:
        """Return what a memory was recalled for, to centre on if only a part of it is shown."""
        return words_about(key, self.queries, self.trace.start.asked)

    def __str__(self) -> str:
        """Return what the command line shows: the steps, and what was handed off."""
        from memrecall.agent.terminal_view import render_recall

        return render_recall(self)

    def _repr_html_(self) -> str:
        from memrecall.agent.views import result_html

        return result_html(self)
