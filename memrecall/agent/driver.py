"""The driver of a recall: iterations over growing windows, one budget, always one result."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypedDict

from memrecall import model
from memrecall.agent.conversation import Conversation
from memrecall.agent.loop import TOOL_SECONDS, Finish, LoopContext, RecallLoop, Stop, Widen
from memrecall.agent.offline import OfflinePolicy
from memrecall.agent.policy import LARGEST_PROMPT, ModelPolicy, RecallPolicy
from memrecall.agent.result import RecallResult, Recorder, StopReason
from memrecall.agent.result_builder import CAN_FALL_BACK, RunOutcome, build_result
from memrecall.agent.state import UNKNOWN_USER, RecallState, Window, has_knowledge, read_version
from memrecall.agent.trace import (
    FallbackEvent,
    IterationEvent,
    Observer,
    StartEvent,
    TraceEvent,
    stream_events,
)
from memrecall.budget import Budget, Limit, Limits
from memrecall.errors import InvalidArgument, StorageError
from memrecall.json_objects import make_storable
from memrecall.library.library import Caches, Library, enter_all
from memrecall.messages import parse_messages, strip_markers
from memrecall.model import protocol
from memrecall.model.prompts import answers_by_rules
from memrecall.scope import Scope
from memrecall.text.language import language_of
from memrecall.text.times import parse_period
from memrecall.timing import deadline, seconds_left
from memrecall.types import Language, check_time_zone, parse_time
from memrecall.workers import ignore_outcome

FIRST_WINDOW = 5
TRACE_DAYS = 30
_REQUEST_CHARACTERS = 2_000
# The loop keeps the limits; this bounds what hangs around it, and what follows before a deadline.
_GRACE_SECONDS, _SHARE = 1.0, 0.2  # at most that share of a deadline


Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """Options of recalls."""

    limits: Limits = field(default_factory=Limits)
    first_window: int = FIRST_WINDOW
    language: Language | None = None  # None: the language of the message
    tool_seconds: float = TOOL_SECONDS
    largest_prompt: int = LARGEST_PROMPT
    keep_traces_days: int = TRACE_DAYS  # 0: traces are not stored
    as_of: datetime | None = None  # the "now" of recalls that name none, so that they can replay

    def __post_init__(self) -> None:
        for name in ("first_window", "largest_prompt", "tool_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(
                    f"{name} is {getattr(self, name)}", hint="Use a number above 0"
                )
        if self.keep_traces_days < 0:
            raise InvalidArgument(
                f"keep_traces_days is {self.keep_traces_days}", hint="Use 0 or more"
            )


class RecallArguments(TypedDict, total=False):
    """The keyword arguments that everything that recalls accepts; see `Recaller`."""

    model_client: protocol.ChatCompletionClient | None
    options: RecallOptions
    clock: Clock
    as_of: datetime | None
    observer: Observer | None


class Recaller:
    """Recalls for one scope. It keeps no state between recalls, so several can run at once."""

    def __init__(
        self,
        library: Library,
        scope: Scope,
        model_client: protocol.ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        *,
        caches: Caches | None = None,
        clock: Clock = utc_now,
        as_of: datetime | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.library = library
        self.scope = scope
        self.options = options if as_of is None else replace(options, as_of=as_of)
        # None: the recall searches without a model.
        self.model_client = None if answers_by_rules(model_client) else model_client
        self._caches = caches or library.caches
        self._clock = clock
        self._observer = observer

    async def recall(
        self,
        messages: object,
        *,
        as_of: datetime | None = None,
        time_zone: str | None = None,
        time: str | None = None,
        observer: Observer | None = None,
        cancellation_token: protocol.CancellationToken | None = None,
    ) -> RecallResult:
        """Find what the last user message refers to. Every recall ends in one result.

        `as_of` is the "now" of the recall: later messages and memories are not seen. It overrides
        the constructor's; an `observer` is called after the constructor's. `time_zone` overrides
        the user's time zone; nothing outside of the period `time` is found. A cancelled token ends
        the recall with the results so far; a cancelled task raises CancelledError.
        """
        # What no database or JSON can hold is replaced: nothing is stored, so a message that was
        # cut inside an emoji is no reason to refuse it.
        given = parse_messages(make_storable(messages))
        given = tuple(replace(each, text=make_storable(each.text)) for each in given)
        conversation = Conversation(given, self.library.store, self.scope)
        if as_of := as_of or self.options.as_of:
            as_of = parse_time(as_of, "as_of")
        if time_zone is not None:
            check_time_zone(time_zone)
        version, stop = UNKNOWN_USER, None
        try:
            version = await read_version(self.library, self.scope)
            await enter_all(self.library.store, self.scope)
            is_empty = version.version == 0 and not self.scope.spaces
            if is_empty and not await has_knowledge(self.library, self.scope):
                stop = Stop(StopReason.NOTHING_STORED)
        except StorageError as error:
            stop = Stop(StopReason.STORAGE_FAILED, error.message)
        now = as_of or self._clock()
        options = self.options
        state = RecallState(
            library=self.library,
            scope=self.scope,
            version=version,
            conversation=conversation,
            now=now,
            window=Window(options.first_window, max_iterations=options.limits.iterations),
            caches=self._caches,
            language=options.language or language_of(strip_markers(conversation.request.text)),
            as_of=as_of,
            time_zone=time_zone,
            period=parse_period(time, now, time_zone or version.time_zone),
        )
        client = self.model_client
        if stop is None and client is not None and isinstance(client, model.BaseClient):
            await client.load()  # before the recall's time begins
        run = RecallRun(self, state, Recorder((self._observer, observer)))
        outcome = RunOutcome(stop) if stop else await _run_until_cancelled(run, cancellation_token)
        return await build_result(run.context, outcome, run.windows, options.keep_traces_days)


async def stream_recall(
    recaller: Recaller, messages: object, **options: Any
) -> AsyncGenerator[TraceEvent | RecallResult, None]:
    """Recall with `options`, and yield each trace event as it happens, then the result."""
    recall = partial(recaller.recall, messages, **options)
    async with aclosing(stream_events(lambda observer: recall(observer=observer))) as items:
        async for item in items:
            yield item


async def _run_until_cancelled(
    run: RecallRun, token: protocol.CancellationToken | None
) -> RunOutcome:
    """Run a recall, ended by the token if that is cancelled."""
    if token is None:
        return await run.run()
    if token.is_cancelled():
        return RunOutcome(Stop(StopReason.CANCELLED))
    task = asyncio.ensure_future(run.run())
    token.link_future(task)
    task.add_done_callback(ignore_outcome)  # a cancelled caller does not wait for it
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        current = asyncio.current_task()
        if not token.is_cancelled() or (current is not None and current.cancelling()):
            raise
        return RunOutcome(Stop(StopReason.CANCELLED))


class RecallRun:
    """One recall in progress."""

    def __init__(self, recaller: Recaller, state: RecallState, recorder: Recorder) -> None:
        self.windows: list[int] = []
        self._options = recaller.options
        self._state = state
        limits, left = self._options.limits, seconds_left(math.inf)
        left -= min(_GRACE_SECONDS, _SHARE * left)  # The result is due at the deadline.
        budget = Budget(replace(limits, seconds=min(limits.seconds, left)))
        self.context = self._make_context(recaller.model_client, budget, recorder)
        recorder.add(
            StartEvent(
                asked=state.conversation.request.text[:_REQUEST_CHARACTERS],
                given=len(state.conversation.messages),
                model=self.context.policy.name,
                language=state.language,
                now=state.format_local(state.now),
                time_zone=state.zone.key,
            )
        )

    async def run(self) -> RunOutcome:
        """Iterate to the end, without the model if it cannot do the recall."""
        try:
            seconds = self.context.budget.seconds_left + _GRACE_SECONDS
            with deadline(seconds):
                async with asyncio.timeout(seconds):
                    outcome = await self._iterate()
                    if (failure := self._find_failure(outcome)) is None:
                        return outcome
                    budget, recorder = self.context.budget, self.context.recorder
                    problem = failure.problem
                    recorder.add(FallbackEvent(reason=failure.reason.value, problem=problem))
                    budget.allow_offline()
                    self.context = self._make_context(None, budget, recorder)
                    self._state.restart_offline()
                    return replace(await self._iterate(), fallback=failure)
        except TimeoutError:
            return RunOutcome(Stop(StopReason.SECONDS))
        except StorageError as error:
            return RunOutcome(Stop(StopReason.STORAGE_FAILED, error.message))

    async def _iterate(self) -> RunOutcome:
        state, recorder = self._state, self.context.recorder
        while True:
            window = state.window
            # One message more than are shown says whether older ones exist.
            messages = await state.conversation.window(window.size + 1)
            window.has_older = len(messages) > window.size
            if len(self.windows) < window.iteration:  # the offline policy continues in the model's
                self.windows.append(window.size)
            state.shown, state.turns = messages[-window.size :], []
            window.shown = len(state.shown)
            recorder.iteration = window.iteration
            recorder.add(IterationEvent(window=window.size, shown=window.shown))
            if problem := self.context.policy.begin_iteration():
                return RunOutcome(Stop(StopReason.ITERATIONS, problem))
            match await RecallLoop(self.context).run():
                case Widen(size):
                    state.window = replace(
                        window, size=size, iteration=window.iteration + 1, granted=None, refusals=0
                    )
                case Finish() | Stop() as end:
                    return RunOutcome(end)

    def _find_failure(self, outcome: RunOutcome) -> Stop | None:
        """Return why the recall has to go on without its model, if it has to.

        The model failed, or it reached a limit without a successful search. A handoff that only
        the limit forced says nothing then, unless it names a key.
        """
        context, end = self.context, outcome.end
        if self._state.is_offline:
            return None
        if isinstance(end, Finish):
            if end.forced_by is None or end.handoff.relevant_memory_keys:
                return None
            end = Stop(end.forced_by, context.describe_lack())
        if end.reason in CAN_FALL_BACK:
            return end
        is_limit = end.reason.value in set(Limit) and context.budget.seconds_left > 0
        has_tried = context.budget.usage.model_calls > 0
        return end if is_limit and has_tried and not self._state.searches else None

    def _make_context(
        self, client: protocol.ChatCompletionClient | None, budget: Budget, recorder: Recorder
    ) -> LoopContext:
        state, options = self._state, self._options
        policy: RecallPolicy = OfflinePolicy(state, budget)
        if client is not None:
            policy = ModelPolicy(client, state, budget, recorder, options.largest_prompt)
        state.keyword_model = policy.keyword_model
        return LoopContext(state, policy, budget, recorder, options.tool_seconds)
