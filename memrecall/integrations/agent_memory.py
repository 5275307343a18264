"""One user's memory as an agent framework needs it: before a turn, as tools, and after it."""

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from memrecall.agent.blocks import BlockRecaller
from memrecall.agent.dispatch import error_code
from memrecall.agent.driver import Clock, RecallOptions
from memrecall.agent.offline.needs import RecallWhen, check_when
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    BLOCK_START,
    BlockPlace,
    to_json,
    write_failure,
)
from memrecall.agent.result import RecalledMemory
from memrecall.agent.tools.arguments import parse_arguments
from memrecall.agent.tools.definition import Interface, Tool
from memrecall.agent.tools.models import ToolErrorCode, ToolFailure
from memrecall.agent.tools.table import tools_for
from memrecall.agent.trace import Observer
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    ScriptExhausted,
    install_command,
)
from memrecall.memory.memory import AsyncMemory
from memrecall.memory.sync import Memory
from memrecall.messages import USER_SOURCES, ConversationMessage, parse_items
from memrecall.model import protocol
from memrecall.model.structured import SOURCE as SOURCE  # of the messages that hosts add
from memrecall.types import Language, Role

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, Result]]
Failure: TypeAlias = Callable[[Exception], Result]
Evidence: TypeAlias = tuple[list[RecalledMemory], str]  # and a failure in words, or ""
AnyMemory: TypeAlias = Memory | AsyncMemory


@contextmanager
def framework_of(extra: str) -> Iterator[None]:
    """Add to a failed import of a framework how to install it."""
    try:
        yield
    except ImportError as error:
        message = f"{error}; for this integration: {install_command(extra)}"
        raise ImportError(message, name=error.name) from error


def is_block(message: ConversationMessage) -> bool:
    """Return True for recalled memories that a framework kept among its messages."""
    return message.speaker == SOURCE and message.text.startswith(BLOCK_START)


class RequestArguments(TypedDict, total=False):
    """Keyword arguments of a recall: options, times, and an observer of its trace events."""

    options: RecallOptions | None
    as_of: datetime | None
    clock: Clock | None
    observer: Observer | None


class AgentArguments(RequestArguments, total=False):
    """Keyword arguments of the tools: `language` is that of their texts."""

    language: Language


class BlockArguments(AgentArguments, total=False):
    """Keyword arguments of what adds a recalled block of at most `block_characters`.

    `when="always"` recalls for every text of the user. "auto", the default, leaves out greetings,
    thanks, acknowledgements and code without a question.
    """

    block_characters: int
    when: RecallWhen


class AgentMemory:
    """A memory bound to a user, for the code of one agent.

    An `AsyncMemory` serves the event loop that opened it. A `Memory` has a loop of its own, and so
    serves sync code and any event loop.
    """

    def __init__(
        self,
        memory: AnyMemory,
        *,
        language: Language = "en",
        block_characters: int = BLOCK_CHARACTERS,
        place: BlockPlace = "before",
        when: RecallWhen = "auto",
        **recall: Unpack[RequestArguments],
    ) -> None:
        if memory.user_id is None:
            raise InvalidArgument(
                "the memory of an agent must be bound to a user",
                hint="Bind one: Memory(user_id=…) or memory.bind(user_id=…)",
            )
        self._blocking = memory if isinstance(memory, Memory) else None
        self.memory = memory.async_memory if isinstance(memory, Memory) else memory
        self.recall_arguments = recall
        self.language = language
        check_when(when)
        self._block_options = (block_characters, place, when)

    async def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine of `memory`, from async code."""
        return await (work if self._blocking is None else self._blocking.wait(work))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine of `memory`, from sync code."""
        try:
            return self.require_sync().run(work)
        finally:
            work.close()

    async def attempt(self, work: Work[Result], fail: Failure[Result]) -> Result:
        """Like `wait`, but a failure becomes a result: whatever fails, the host's turn goes on."""
        try:
            return await self.wait(_attempt(work, fail))
        except InvalidArgument as error:  # the memory is closed
            return fail(error)

    def attempt_sync(self, work: Work[Result], fail: Failure[Result]) -> Result:
        """Like `attempt`, from sync code."""
        self.require_sync()
        try:
            return self.run(_attempt(work, fail))
        except InvalidArgument as error:
            return fail(error)

    def require_sync(self) -> Memory:
        """Return the `Memory`; InvalidArgument if it is an `AsyncMemory`, which cannot block."""
        if self._blocking is None:
            raise InvalidArgument(
                "sync code cannot wait for an AsyncMemory",
                hint="Pass a Memory, which serves sync and async code, or use the async method",
            )
        return self._blocking

    async def recall(self, messages: object) -> Evidence:
        """Return what the last user message refers to, and a failure in words or ""."""
        return await self.attempt(partial(self._recall, messages), _no_evidence)

    def recall_sync(self, messages: object) -> Evidence:
        """Like `recall`, from sync code."""
        return self.attempt_sync(partial(self._recall, messages), _no_evidence)

    async def recall_block(
        self,
        messages: Sequence[object],
        session_id: str | None = None,
        observer: Observer | None = None,
    ) -> str:
        """Return a block of data about the last message; "" if it needs no recall.

        A failure is logged and becomes a block that says so. `session_id` is the host's session,
        unless one is bound.
        """
        work = partial(self._recall_block, messages, session_id, observer)
        return await self.attempt(work, self._failed_block)

    def recall_block_sync(
        self,
        messages: Sequence[object],
        session_id: str | None = None,
        observer: Observer | None = None,
    ) -> str:
        """Like `recall_block`, from sync code."""
        work = partial(self._recall_block, messages, session_id, observer)
        return self.attempt_sync(work, self._failed_block)

    async def read_version(self) -> object:
        """Return a value that every write for the user changes; None if it cannot be read."""
        try:
            return await self.wait(self._read_version())
        except MemrecallError:  # the recall that follows reports it
            return None

    async def remember(self, messages: object, session_id: str | None = None) -> None:
        """Store the messages of a turn and the facts in them; a failure is only logged."""
        await self.attempt(partial(self._remember, messages, session_id), _log_lost_turn)

    def remember_sync(self, messages: object, session_id: str | None = None) -> None:
        """Like `remember`, from sync code."""
        self.attempt_sync(partial(self._remember, messages, session_id), _log_lost_turn)

    def tools(self) -> list["BoundTool"]:
        """Return the tools to remember, recall, correct and forget, in the order of the table."""
        tools = tools_for(Interface.AUTOGEN).values()
        runner = _ToolRunner(self)
        return [BoundTool(tool, tool.function_schema(self.language), runner) for tool in tools]

    async def _read_version(self) -> object:
        recaller = await self.memory.recaller()
        return await recaller.library.store.feed(recaller.scope.user_id).version()

    async def _recall(self, messages: object) -> Evidence:
        result = await self.memory.recall(messages, **self.recall_arguments)
        handoff = result.handoff
        problem = "" if handoff.success or result.memories else handoff.search_summary
        return result.memories, problem

    async def _recall_block(
        self, messages: Sequence[object], session_id: str | None, observer: Observer | None
    ) -> str:
        conversation = [
            message
            for message in parse_items(messages)
            if message.text.strip() and not is_block(message)
        ]
        if not conversation or conversation[-1].role is not Role.USER:
            return ""
        recaller = await self.memory.recaller(
            session_id=self._session(session_id), **self.recall_arguments
        )
        blocks = BlockRecaller(recaller, USER_SOURCES, *self._block_options)
        return (await blocks.recall_block(conversation, observer=observer))[0]

    async def _remember(self, messages: object, session_id: str | None) -> None:
        await self.memory.add(messages, session_id=self._session(session_id))

    def _failed_block(self, error: Exception) -> str:
        return write_failure(_report("recall", error), self.language)

    def _session(self, session_id: str | None) -> str | None:
        return session_id if self.memory.session_id is None else None


async def _attempt(work: Work[Result], fail: Failure[Result]) -> Result:
    try:
        return await work()
    except Exception as error:  # the edge to the host: a bug is logged, and told as a failure
        return fail(error)


def _no_evidence(error: Exception) -> Evidence:
    return [], _report("recall", error)


def _log_lost_turn(error: Exception) -> None:
    _report("storing a turn", error)


def _report(task: str, error: Exception) -> str:
    """Log a failure and return what may be told of it; only typed errors have safe messages.

    An error of whoever records or scripts the model is raised: a run that hides it proves nothing.
    """
    if isinstance(error, CassetteMismatch | ScriptExhausted):
        raise error
    if isinstance(error, MemrecallError):
        _log.warning("%s failed: %s", task, error)
        return error.message
    _log.error("%s failed", task, exc_info=error)
    return type(error).__name__


@dataclass
class _ToolRunner:
    """Runs tools of the table by name, with the memory opened at the first call."""

    owner: AgentMemory
    tools: dict[str, Any] = field(default_factory=dict)

    async def run(self, tool: Tool, arguments: object) -> str:
        owner = self.owner
        values = parse_arguments(tool, arguments, lenient=True, language=owner.language)
        if not self.tools:
            tools = await owner.memory.tools(language=owner.language, **owner.recall_arguments)
            self.tools.update({each.name: each for each in tools})
        runnable = self.tools[tool.name]
        answer: str = runnable.return_value_as_string(
            await runnable.run(values, protocol.CancellationToken())
        )
        return answer


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool of the table, bound to one user, for a framework to wrap.

    The model's arguments are checked against the table: none of them can name a user.
    """

    tool: Tool
    schema: Any
    runner: _ToolRunner

    @property
    def name(self) -> str:
        """The name for the model."""
        return self.tool.name

    @property
    def description(self) -> str:
        """The description for the model, in the language of the memory."""
        return str(self.schema["description"])

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return dict(self.schema["parameters"])

    async def call(self, arguments: object) -> str:
        """Return the answer for the model as JSON; an error is an answer too.

        `arguments` is an object, or the JSON text that the model wrote.
        """
        work = partial(self.runner.run, self.tool, arguments)
        return await self.runner.owner.attempt(work, self._failure)

    def call_sync(self, arguments: object) -> str:
        """Like `call`, from sync code."""
        work = partial(self.runner.run, self.tool, arguments)
        return self.runner.owner.attempt_sync(work, self._failure)

    def _failure(self, error: Exception) -> str:
        problem = _report(self.name, error)
        if isinstance(error, MemrecallError):
            failure = ToolFailure(error=error_code(error), message=str(error))
        else:
            text = say(self.runner.owner.language, "internal", tool=self.name, problem=problem)
            failure = ToolFailure(error=ToolErrorCode.INTERNAL, message=text)
        return to_json(failure.as_json())
