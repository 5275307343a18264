"""The driver of a recall: iterations over growing windows, one budget, always one result."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage

from memrecall.agent.budgeted_model import BudgetedClient, BudgetedModel
from memrecall.agent.conversation import Conversation
from memrecall.agent.dispatch import TOOL_SECONDS
from memrecall.agent.loop import LARGEST_PROMPT, LoopContext, RecallLoop
from memrecall.agent.offline import offline_client
from memrecall.agent.outcome import Finish, Stop, StopReason, Widen
from memrecall.agent.prompt_view import SOURCE, to_json, write_briefing
from memrecall.agent.result import RecallResult
from memrecall.agent.result_builder import Ended, report
from memrecall.agent.state import KeywordModel, KeywordReply, RecallState, Window
from memrecall.agent.tools.models import ExtractKeywordsInput
from memrecall.agent.trace import (
    FallbackEvent,
    IterationEvent,
    Observer,
    Recorder,
    StartEvent,
)
from memrecall.budget import Budget, Limits
from memrecall.errors import ModelFailed, StorageError
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.messages import ConversationMessage, parse_messages
from memrecall.model.offline import OFFLINE_FAMILY
from memrecall.model.prompts import Language, load_prompt
from memrecall.model.structured import Structured, ask_json
from memrecall.scope import Scope
from memrecall.store import UserVersion
from memrecall.text.language import language_of
from memrecall.types import check_time_zone, parse_time

FIRST_WINDOW = 5
TRACE_DAYS = 30
_RESERVE, _RESERVED_SHARE = 5.0, 0.2  # seconds, and share of the time, that the rules would need
_ASKED_SHOWN = 2_000  # characters
_GRACE = 1.0  # seconds: limits are kept inside the loop; this is for what hangs around it


@dataclass(frozen=True, slots=True)
class RecallOptions:
    """How recalls are run."""

    limits: Limits = field(default_factory=Limits)
    first_window: int = FIRST_WINDOW
    language: Language | None = None  # None: that of the message
    grow_window: bool = True  # False: the first window is all that is shown
    expand_queries: bool = True  # add other forms of a query's words to each search
    expand_with_model: bool = False  # ask the model for more words at each new query
    tool_seconds: float = TOOL_SECONDS
    largest_prompt: int = LARGEST_PROMPT
    keep_traces_days: int = TRACE_DAYS  # 0: traces are not stored


class Recaller:
    """Recalls for one scope. It keeps nothing of a recall, so that several can run at once."""

    def __init__(
        self,
        library: Library,
        scope: Scope,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        *,
        caches: Caches | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.library = library
        self.scope = scope
        self.options = options
        self.model_client = model_client or offline_client()
        self._caches = caches or Caches()
        self._clock = clock

    async def recall(
        self,
        messages: object,
        *,
        as_of: datetime | None = None,
        time_zone: str | None = None,
        observer: Observer | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> RecallResult:
        """Find what the last user message refers to. Every recall ends in one result.

        With `as_of`, "now" is that time and nothing said later is seen. With `time_zone`,
        "yesterday" and days are read there, this time. A cancelled token ends the recall with what
        was found; a cancelled task is cancelled.
        """
        given = parse_messages(messages)
        as_of = as_of and parse_time(as_of, "as_of")
        if time_zone is not None:
            check_time_zone(time_zone)
        mark, problem = await self._mark()
        conversation = Conversation(given, self.library.store, self.scope)
        desk = self._desk(conversation, mark or UserVersion("", 0, 1, "UTC"), as_of)
        desk.time_zone = time_zone
        course = RecallRun(self, desk, Recorder(observer))
        if problem is not None:
            ended = Ended(Stop(StopReason.STORAGE_FAILED, problem))
        elif mark is None or mark.version == 0:
            ended = Ended(Stop(StopReason.NOTHING_STORED))
        else:
            ended = await _guarded(course, cancellation_token)
        return await report(course.run, ended, course.windows, self.options.keep_traces_days)

    async def _mark(self) -> tuple[UserVersion | None, str | None]:
        """How far the user's data has come; or why that cannot be told."""
        try:
            mark = await self.library.store.feed(self.scope.user_id).version()
            if mark is not None:
                await self.library.store.require_active(mark, self.scope)
        except StorageError as error:
            return None, error.message
        return mark, None

    def _desk(
        self, conversation: Conversation, mark: UserVersion, as_of: datetime | None
    ) -> RecallState:
        options = self.options
        return RecallState(
            library=self.library,
            scope=self.scope,
            mark=mark,
            conversation=conversation,
            language=options.language or language_of(conversation.request.text),
            now=as_of or self._clock(),
            as_of=as_of,
            window=Window(
                options.first_window,
                max_iterations=options.limits.iterations if options.grow_window else 1,
            ),
            caches=self._caches,
            expand_queries=options.expand_queries,
            expand_with_model=options.expand_with_model,
        )


async def _guarded(course: "RecallRun", token: CancellationToken | None) -> Ended:
    """The course, ended by the token if that is cancelled."""
    if token is None:
        return await course.follow()
    if token.is_cancelled():
        return Ended(Stop(StopReason.CANCELLED))
    task = asyncio.ensure_future(course.follow())
    token.link_future(task)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        current = asyncio.current_task()
        if not token.is_cancelled() or (current is not None and current.cancelling()):
            raise
        return Ended(Stop(StopReason.CANCELLED))


class RecallRun:
    """One recall under way."""

    def __init__(self, recaller: Recaller, desk: RecallState, recorder: Recorder) -> None:
        self.windows: list[int] = []
        self._options = recaller.options
        self._desk = desk
        self.run = self._with(recaller.model_client, Budget(self._options.limits), recorder)
        recorder.add(
            StartEvent(
                asked=desk.conversation.request.text[:_ASKED_SHOWN],
                given=len(desk.conversation.messages),
                model=self.run.name,
                language=desk.language,
                now=desk.local(desk.now),
                time_zone=desk.zone.key,
            )
        )

    async def follow(self) -> Ended:
        """Iterate to the end; where the model cannot play at all, let the rules go on."""
        budget = self.run.budget
        try:
            async with asyncio.timeout(budget.seconds_left + _GRACE):
                ended = await self._iterate()
                if ended.is_replaceable and not self._is_offline():
                    ended = await self._fall_back(ended)
                return ended
        except TimeoutError:
            return Ended(Stop(StopReason.SECONDS))
        except StorageError as error:
            return Ended(Stop(StopReason.STORAGE_FAILED, error.message))

    async def _iterate(self) -> Ended:
        while True:
            shown = await self._open_window()
            outcome = await RecallLoop(self.run, write_briefing(self._desk, shown)).run()
            match outcome:
                case Widen(size):
                    window = self._desk.window
                    self._desk.window = replace(
                        window, size=size, iteration=window.iteration + 1, granted=None, refusals=0
                    )
                case Finish() | Stop():
                    return Ended(outcome)

    async def _open_window(self) -> list[ConversationMessage]:
        """The messages to be shown; one more than that tells whether there are older ones."""
        window = self._desk.window
        found = await self._desk.conversation.window(window.size + 1)
        window.older_exist = len(found) > window.size
        if len(self.windows) < window.iteration:  # the rules may go on where the model gave up
            self.windows.append(window.size)
        recorder = self.run.recorder
        recorder.iteration = window.iteration
        shown = found[-window.size :]
        recorder.add(IterationEvent(window=window.size, shown=len(shown)))
        return shown

    async def _fall_back(self, ended: Ended) -> Ended:
        failed, recorder, budget = ended.outcome, self.run.recorder, self.run.budget
        assert isinstance(failed, Stop)  # noqa: S101 -- only those are replaceable
        recorder.add(FallbackEvent(reason=failed.reason.value, problem=failed.problem))
        budget.renew()
        self.run = self._with(offline_client(), budget, recorder)
        self._desk.window.refusals = 0
        return replace(await self._iterate(), fallback=failed)

    def _is_offline(self) -> bool:
        return self.run.model.client.model_info["family"] == OFFLINE_FAMILY

    def _with(
        self, client: ChatCompletionClient, budget: Budget, recorder: Recorder
    ) -> LoopContext:
        """The run as this client plays it."""
        offline = client.model_info["family"] == OFFLINE_FAMILY
        reserve = 0.0 if offline else min(_RESERVE, _RESERVED_SHARE * budget.limits.seconds)
        run = LoopContext(
            desk=self._desk,
            model=BudgetedModel(client, budget, recorder, reserve),
            recorder=recorder,
            tool_seconds=self._options.tool_seconds,
            largest_prompt=self._options.largest_prompt,
        )
        self._desk.keyword_model = None if offline else _keyword_model(self._desk, run.model)
        return run


def _keyword_model(desk: RecallState, model: BudgetedModel) -> KeywordModel:
    """Keywords by the model, with the prompt of that name."""
    client = BudgetedClient(model, "keywords")

    async def ask(asked: ExtractKeywordsInput) -> Structured[KeywordReply]:
        messages: list[LLMMessage] = [
            SystemMessage(content=load_prompt("keywords", desk.language)),
            UserMessage(content=to_json(asked.model_dump(exclude_none=True)), source=SOURCE),
        ]
        try:
            return await ask_json(client, messages, KeywordReply)
        except ModelFailed as error:
            return Structured(None, problem=error.message)

    return ask
