"""One user's memory as an agent framework needs it: before a turn and after it."""

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from memrecall.agent.blocks import (
    BLOCK_CHARACTERS,
    BLOCK_START,
    BlockPlace,
    BlockRecaller,
    write_failure,
)
from memrecall.agent.conversation import RecallWhen, check_when
from memrecall.agent.driver import Clock, RecallOptions
from memrecall.agent.phrases import say, to_json
from memrecall.agent.result import RecalledMemory
from memrecall.agent.tools.models import ToolErrorCode, ToolFailure
from memrecall.agent.tools.table import Interface, Tool, error_code, parse_arguments, tools_for
from memrecall.agent.trace import Observer
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    ScriptExhausted,
    describe_for_log,
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
# One memory for all requests, or a trusted function from the host's request context to a memory;
# None leaves a request without memory.
MemorySource: TypeAlias = AnyMemory | Callable[[Any], AnyMemory | None]

_BLOCKS = 256  # recalled blocks that are kept for the next model calls of their turns


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
    thanks and acknowledgements.
    """

    block_characters: int
    when: RecallWhen


class _NoMemory(InvalidArgument):
    """The function of a `MemorySource` has returned None."""


class AgentMemory:
    """A memory bound to a user, for the code of one agent, or a function that returns one.

    An `AsyncMemory` serves the event loop that opened it. A `Memory` has a loop of its own, and so
    serves sync code and any event loop.
    """

    memory: AsyncMemory

    def __init__(
        self,
        memory: MemorySource,
        *,
        language: Language = "en",
        block_characters: int = BLOCK_CHARACTERS,
        place: BlockPlace = "before",
        when: RecallWhen = "auto",
        **recall: Unpack[RequestArguments],
    ) -> None:
        self._blocking: Memory | None = None
        self._problem: Exception | None = None  # why there is no memory
        self._find = None if isinstance(memory, Memory | AsyncMemory) else memory
        if self._find is None and memory is not None:
            self._bind(memory)
        elif not callable(memory) or isinstance(memory, type):
            raise InvalidArgument(
                f"{memory!r:.60} is not a memory",
                hint="Pass a Memory, an AsyncMemory, or a function that returns one",
            )
        self.recall_arguments = recall
        options = recall.get("options") or RecallOptions()
        # Hosts stamp messages with the time of the machine, which another clock contradicts.
        self._has_own_time = any((recall.get("clock"), recall.get("as_of"), options.as_of))
        self.language = language
        check_when(when)
        self._block_options = (block_characters, place, when)

    def _bind(self, memory: object) -> None:
        if memory is None:
            raise _NoMemory("this request has no memory")
        if not isinstance(memory, Memory | AsyncMemory):
            raise InvalidArgument(
                f"the function returned a {type(memory).__name__}", hint="Return a memory or None"
            )
        if memory.user_id is None:
            raise InvalidArgument(
                "the memory of an agent must be bound to a user",
                hint="Bind one: Memory(user_id=…) or memory.bind(user_id=…)",
            )
        self._blocking = memory if isinstance(memory, Memory) else None
        self.memory = memory.async_memory if isinstance(memory, Memory) else memory

    def of(self, context: object, *, is_sync: bool = False) -> "AgentMemory":
        """Return the memory of a request: this one, or the function's for the host's context.

        If the function fails, nothing is recalled or stored: no other memory takes its place.
        """
        if self._find is None:
            return self
        bound = copy.copy(self)
        bound._find = None
        try:
            bound._bind(self._find(context))
            if is_sync:
                bound.require_sync()
        except Exception as error:  # of the application's function: reported as a failure
            bound._problem = error
        return bound

    @property
    def owner_ids(self) -> tuple[str | None, ...]:
        """The user, agent and session that are bound."""
        if self._problem is not None:
            return ()
        return self.memory.user_id, self.memory.agent_id, self.memory.session_id

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
        if self._problem is not None:
            return fail(self._problem)
        try:
            return await self.wait(_attempt(work, fail))
        except InvalidArgument as error:  # the memory is closed
            return fail(error)

    def attempt_sync(self, work: Work[Result], fail: Failure[Result]) -> Result:
        """Like `attempt`, from sync code."""
        if self._problem is not None:
            return fail(self._problem)
        self.require_sync()
        try:
            return self.run(_attempt(work, fail))
        except InvalidArgument as error:
            return fail(error)

    def check_sync(self) -> None:
        """Raise InvalidArgument if this is an `AsyncMemory`; a function's memory is not known."""
        if self._find is None:
            self.require_sync()

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
        # The recall that follows reports a failure.
        return await self.attempt(self._read_version, lambda _: None)

    async def remember(
        self, messages: object, session_id: str | None = None, *, background: bool = False
    ) -> None:
        """Store the messages of a turn and the facts in them; a failure is only logged.

        With `background` the facts follow in a job.
        """
        work = partial(self._remember, messages, session_id, background)
        await self.attempt(work, _log_lost_turn)

    def remember_sync(
        self, messages: object, session_id: str | None = None, *, background: bool = False
    ) -> None:
        """Like `remember`, from sync code."""
        work = partial(self._remember, messages, session_id, background)
        self.attempt_sync(work, _log_lost_turn)

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
            replace(message, ts=None) if self._has_own_time else message
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

    async def _remember(self, messages: object, session_id: str | None, background: bool) -> None:
        await self.memory.add(messages, session_id=self._session(session_id), background=background)

    def _failed_block(self, error: Exception) -> str:
        problem = report_failure("recall", error)
        return write_failure(problem, self.language) if problem else ""

    def _session(self, session_id: str | None) -> str | None:
        return session_id if self.memory.session_id is None else None


async def _attempt(work: Work[Result], fail: Failure[Result]) -> Result:
    try:
        return await work()
    except Exception as error:  # the edge to the host: a bug is logged, and told as a failure
        return fail(error)


def _no_evidence(error: Exception) -> Evidence:
    return [], report_failure("recall", error)


def _log_lost_turn(error: Exception) -> None:
    report_failure("storing a turn", error)


def report_failure(task: str, error: Exception) -> str:
    """Log a failure and return what may be told of it; only typed errors have safe messages.

    An error of whoever records or scripts the model is raised: a run that hides it proves nothing.
    A request without memory is no failure.
    """
    if isinstance(error, _NoMemory):
        return ""
    if isinstance(error, CassetteMismatch | ScriptExhausted):
        raise error
    if isinstance(error, MemrecallError):
        _log.warning("%s failed: %s", task, describe_for_log(error))
        return error.message
    _log.error("%s failed", task, exc_info=error)
    return type(error).__name__


class TurnBlocks:
    """The blocks of recent turns: all model calls of one turn share one recall."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[object, str] = OrderedDict()
        self._lock = Lock()  # hosts call their models from several threads

    def get(self, owner: AgentMemory, messages: Sequence[object]) -> str | None:
        """Return the block for the last of these messages; None if it is not known."""
        return self._blocks.get((owner.owner_ids, _hash(messages)))

    def put(self, owner: AgentMemory, messages: Sequence[object], block: str) -> None:
        """Keep the block for the last of these messages."""
        with self._lock:
            self._blocks[owner.owner_ids, _hash(messages)] = block
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)


def _hash(messages: Sequence[object]) -> bytes:
    """Return a key of messages without their pictures, which have megabytes."""
    return sha256(repr(messages).encode("utf-8", "backslashreplace")).digest()


def bind_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list["BoundTool"]:
    """Return the tools to remember, recall, correct and forget, in the order of the table."""
    owner = AgentMemory(memory, **arguments)
    runner = _ToolRunner(owner)
    tools = tools_for(Interface.AUTOGEN).values()
    return [BoundTool(tool, tool.function_schema(owner.language), runner) for tool in tools]


@dataclass
class _ToolRunner:
    """Runs tools of the table by name, with the memory opened at the first call."""

    owner: AgentMemory
    tools: dict[str, Any] = field(default_factory=dict)

    def of(self, context: object, *, is_sync: bool = False) -> "_ToolRunner":
        owner = self.owner.of(context, is_sync=is_sync)
        return self if owner is self.owner else _ToolRunner(owner)

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

    async def call(self, arguments: object, context: object = None) -> str:
        """Return the answer for the model as JSON; an error is an answer too.

        `arguments` is an object, or the JSON text that the model wrote. `context` is the host's
        context of the request, which decides whose memory it is if that was left to a function.
        """
        runner = self.runner.of(context)
        return await runner.owner.attempt(partial(runner.run, self.tool, arguments), self._failure)

    def call_sync(self, arguments: object, context: object = None) -> str:
        """Like `call`, from sync code."""
        runner = self.runner.of(context, is_sync=True)
        return runner.owner.attempt_sync(partial(runner.run, self.tool, arguments), self._failure)

    def _failure(self, error: Exception) -> str:
        problem = report_failure(self.name, error)
        if isinstance(error, MemrecallError):
            failure = ToolFailure(error=error_code(error), message=str(error))
        else:
            text = say(self.runner.owner.language, "internal", tool=self.name, problem=problem)
            failure = ToolFailure(error=ToolErrorCode.INTERNAL, message=text)
        return to_json(failure.as_json())
