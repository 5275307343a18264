"""The driver of a recall: iterations over growing windows, one budget, always one result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from memrecall.agent.budgeted_model import BudgetedModel
from memrecall.agent.conversation import Conversation
from memrecall.agent.dispatch import TOOL_SECONDS
from memrecall.agent.loop import LARGEST_PROMPT, Finish, LoopContext, RecallLoop, Stop, Widen
from memrecall.agent.offline import offline_client
from memrecall.agent.prompt import Prompt
from memrecall.agent.prompt_view import SOURCE, to_json, write_briefing
from memrecall.agent.result import RecallResult, StopReason
from memrecall.agent.result_builder import CAN_FALL_BACK, RunOutcome, build_result
from memrecall.agent.state import (
    UNKNOWN_USER,
    KeywordModel,
    KeywordReply,
    RecallState,
    Window,
    has_knowledge,
    read_version,
)
from memrecall.agent.tools.models import ExtractKeywordsInput
from memrecall.agent.trace import Observer, Recorder, stream_events
from memrecall.agent.trace_events import FallbackEvent, IterationEvent, StartEvent, TraceEvent
from memrecall.budget import Budget, Limit, Limits
from memrecall.errors import InvalidArgument, ModelFailed, StorageError
from memrecall.json_objects import make_storable
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage, parse_messages
from memrecall.model import protocol
from memrecall.model.prompts import load_prompt
from memrecall.model.structured import Structured, ask_json
from memrecall.scope import Scope
from memrecall.store import UserVersion
from memrecall.telemetry import trace_recall
from memrecall.text.language import language_of
from memrecall.types import Language, check_time_zone, parse_time
from memrecall.workers import ignore_outcome

FIRST_WINDOW = 5
TRACE_DAYS = 30
# Seconds, and share of the time, that are reserved for the rules in case the model never answers.
_RESERVE_SECONDS, _RESERVE_SHARE = 5.0, 0.2
_REQUEST_CHARACTERS = 2_000
_GRACE_SECONDS = 1.0  # the loop keeps the limits; this bounds what hangs around it


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
    grow_window: bool = True  # False: the agent sees the first window only
    expand_queries: bool = True  # add other forms of a query's words to each search
    expand_with_model: bool = False  # ask the model for more words at each new query
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
        self.model_client = model_client or offline_client()
        self._caches = caches or library.caches
        self._clock = clock
        self._observer = observer

    async def recall(
        self,
        messages: object,
        *,
        as_of: datetime | None = None,
        time_zone: str | None = None,
        observer: Observer | None = None,
        cancellation_token: protocol.CancellationToken | None = None,
    ) -> RecallResult:
        """Find what the last user message refers to. Every recall ends in one result.

        `as_of` is the "now" of the recall: later messages and memories are not seen. It overrides
        that of the constructor; an `observer` is called beside that of the constructor. `time_zone`
        overrides the user's time zone. A cancelled token ends the recall with the results so far;
        a cancelled task raises CancelledError.
        """
        conversation = Conversation(_parse_request(messages), self.library.store, self.scope)
        as_of = as_of or self.options.as_of
        as_of = as_of and parse_time(as_of, "as_of")
        if time_zone is not None:
            check_time_zone(time_zone)
        version, stop = UNKNOWN_USER, None
        try:
            version = await read_version(self.library, self.scope)
            if version.version == 0 and not await has_knowledge(self.library, self.scope):
                stop = Stop(StopReason.NOTHING_STORED)
        except StorageError as error:
            stop = Stop(StopReason.STORAGE_FAILED, error.message)
        state = self._make_state(conversation, version, as_of, time_zone)
        run = RecallRun(self, state, Recorder(_join(self._observer, observer)))
        with trace_recall():
            outcome = (
                RunOutcome(stop) if stop else await _run_until_cancelled(run, cancellation_token)
            )
            keep_days = self.options.keep_traces_days
            return await build_result(run.context, outcome, run.windows, keep_days)

    def _make_state(
        self,
        conversation: Conversation,
        version: UserVersion,
        as_of: datetime | None,
        time_zone: str | None,
    ) -> RecallState:
        options = self.options
        return RecallState(
            library=self.library,
            scope=self.scope,
            version=version,
            conversation=conversation,
            language=options.language or language_of(conversation.request.text),
            now=as_of or self._clock(),
            as_of=as_of,
            time_zone=time_zone,
            window=Window(
                options.first_window,
                max_iterations=options.limits.iterations if options.grow_window else 1,
            ),
            caches=self._caches,
            expand_queries=options.expand_queries,
            expand_with_model=options.expand_with_model,
        )


async def stream_recall(
    recaller: Recaller,
    messages: object,
    *,
    as_of: datetime | None = None,
    time_zone: str | None = None,
    cancellation_token: protocol.CancellationToken | None = None,
) -> AsyncGenerator[TraceEvent | RecallResult, None]:
    """Recall, and yield each trace event as it happens, then the result."""
    recall = partial(
        recaller.recall,
        messages,
        as_of=as_of,
        time_zone=time_zone,
        cancellation_token=cancellation_token,
    )
    async with aclosing(stream_events(lambda observer: recall(observer=observer))) as items:
        async for item in items:
            yield item


def _parse_request(messages: object) -> tuple[ConversationMessage, ...]:
    """Return the messages with replaced characters where no database or JSON can hold them.

    Nothing is stored, so a message that was cut inside an emoji is no reason to refuse it.
    """
    parsed = parse_messages(make_storable(messages))
    return tuple(replace(each, text=make_storable(each.text)) for each in parsed)


def _join(first: Observer | None, second: Observer | None) -> Observer | None:
    if first is None or second is None:
        return first or second

    def observe(event: TraceEvent) -> None:
        first(event)
        second(event)

    return observe


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
        budget = Budget(self._options.limits)
        self.context = self._make_context(recaller.model_client, budget, recorder)
        recorder.add(
            StartEvent(
                asked=state.conversation.request.text[:_REQUEST_CHARACTERS],
                given=len(state.conversation.messages),
                model=self.context.model.name,
                language=state.language,
                now=state.format_local(state.now),
                time_zone=state.zone.key,
            )
        )

    async def run(self) -> RunOutcome:
        """Iterate to the end; the rules take over from a model that cannot do the recall."""
        try:
            async with asyncio.timeout(self.context.budget.seconds_left + _GRACE_SECONDS):
                outcome = await self._iterate()
                failure = self._find_failure(outcome)
                return await self._fall_back(failure) if failure else outcome
        except TimeoutError:
            return RunOutcome(Stop(StopReason.SECONDS))
        except StorageError as error:
            return RunOutcome(Stop(StopReason.STORAGE_FAILED, error.message))

    async def _iterate(self) -> RunOutcome:
        while True:
            messages = await self._open_window()
            briefing = write_briefing(self._state, messages)
            loop = RecallLoop(self.context, briefing)
            if problem := self._describe_overflow(loop.smallest_prompt):
                return RunOutcome(Stop(StopReason.ITERATIONS, problem))
            match await loop.run():
                case Widen(size):
                    window = self._state.window
                    self._state.window = replace(
                        window, size=size, iteration=window.iteration + 1, granted=None, refusals=0
                    )
                case Finish() | Stop() as end:
                    return RunOutcome(end)

    def _describe_overflow(self, smallest: int) -> str:
        """Return why a larger window cannot be shown; raise if even the first one cannot."""
        largest = self._options.largest_prompt
        if smallest <= largest or self.context.model.is_offline:
            return ""
        if self._state.window.iteration == 1:
            raise InvalidArgument(
                f"largest_prompt is {largest}, and this window needs {smallest} characters",
                hint=f"Use {smallest} or more, or a smaller first_window",
            )
        return self._state.say("prompt_too_small", largest=largest, smallest=smallest)

    async def _open_window(self) -> list[ConversationMessage]:
        """Return the messages of the window; reading one more shows whether older ones exist."""
        window = self._state.window
        messages = await self._state.conversation.window(window.size + 1)
        window.has_older = len(messages) > window.size
        if len(self.windows) < window.iteration:  # the rules continue in the model's iteration
            self.windows.append(window.size)
        recorder = self.context.recorder
        recorder.iteration = window.iteration
        messages = messages[-window.size :]
        window.shown = len(messages)
        recorder.add(IterationEvent(window=window.size, shown=len(messages)))
        return messages

    def _find_failure(self, outcome: RunOutcome) -> Stop | None:
        """Return why the rules have to take over, if they have to.

        The model failed, or it reached a limit without a successful search. A handoff that only
        the limit forced says nothing then, unless it names a key.
        """
        context, end = self.context, outcome.end
        if context.model.is_offline:
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

    async def _fall_back(self, failure: Stop) -> RunOutcome:
        context = self.context
        context.recorder.add(FallbackEvent(reason=failure.reason.value, problem=failure.problem))
        context.budget.allow_rules()
        self.context = self._make_context(offline_client(), context.budget, context.recorder)
        self._state.restart_for_rules()
        return replace(await self._iterate(), fallback=failure)

    def _make_context(
        self, client: protocol.ChatCompletionClient, budget: Budget, recorder: Recorder
    ) -> LoopContext:
        model = BudgetedModel(client, budget, recorder)
        self._state.keyword_model = None
        if not model.is_offline:
            reserve = min(_RESERVE_SECONDS, _RESERVE_SHARE * budget.limits.seconds)
            model = replace(model, reserve=reserve)
            self._state.keyword_model = _make_keyword_model(self._state.language, model)
        return LoopContext(
            state=self._state,
            model=model,
            tool_seconds=self._options.tool_seconds,
            largest_prompt=self._options.largest_prompt,
        )


def _make_keyword_model(language: Language, model: BudgetedModel) -> KeywordModel:
    json_output = model.client.model_info["json_output"] or None

    async def ask(messages: Sequence[protocol.LLMMessage]) -> protocol.CreateResult:
        if (limit := model.budget.last_call()) is not None:  # the last one is for the handoff
            raise ModelFailed(f"the limit on {limit}", kind="quota")
        return await model.call(Prompt(messages), purpose="keywords", json_output=json_output)

    async def extract(arguments: ExtractKeywordsInput) -> Structured[KeywordReply]:
        content = to_json(arguments.model_dump(exclude_none=True))
        messages: list[protocol.LLMMessage] = [
            protocol.SystemMessage(content=load_prompt("keywords", language)),
            protocol.UserMessage(content=content, source=SOURCE),
        ]
        try:
            return await ask_json(ask, messages, KeywordReply)
        except ModelFailed as error:
            return Structured(None, problem=error.message)

    return extract
