"""OpenAI's client with memory: recall before each chat completion or response, storing after it.

client = memrecall.wrap_openai(OpenAI(), Memory(user_id="ann"))
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, Unpack

from memrecall.errors import InvalidArgument
from memrecall.integrations.agent_memory import (
    AgentMemory,
    BlockArguments,
    MemorySource,
    TurnBlocks,
)

Client = TypeVar("Client")

# The parts of a client that call a model, and the argument that has the conversation.
_RESOURCES = {
    "chat.completions": "messages",
    "beta.chat.completions": "messages",
    "responses": "input",
}
_MARK = "_has_memory"  # an attribute of wrapped clients
_INSTRUCTIONS = ("system", "developer")


def wrap_openai(
    client: Client,
    memory: MemorySource,
    *,
    remember: bool = True,
    **arguments: Unpack[BlockArguments],
) -> Client:
    """Return a client that recalls for the last user message and stores the turn.

    It shares the connections of `client`, an `OpenAI` or `AsyncOpenAI`, which stays as it is.
    `create`, `parse` and `stream` of chat completions and responses add what was recalled as one
    message of data before the user's; after the answer, what the user said and the answer are
    stored, and the facts in them follow in the background. A call that fails, is cancelled or whose
    stream is abandoned stores nothing. `memory` may be a function of the request's `user`, which
    returns None for no memory. `recall=False` sends one call as it is and stores nothing;
    `remember=False` never stores. Whatever fails in memory is logged, and the call goes on.
    """
    owner = AgentMemory(memory, **arguments)
    if not hasattr(client, "chat") or not hasattr(client, "copy"):
        raise InvalidArgument(
            f"a {type(client).__name__} is not a client of OpenAI",
            hint="Pass an OpenAI, an AsyncOpenAI, or a client with the same methods",
        )
    if getattr(client, _MARK, None) is True:
        raise InvalidArgument("the client is wrapped already", hint="Wrap the one it was made of")
    is_async = hasattr(client, "__aenter__")
    if not is_async:
        owner.check_sync()
    wrapped: Client = _wrap(client, _Turns(owner, is_async, remember))
    return wrapped


def _wrap(client: Any, turns: "_Turns") -> Any:
    wrapped = client.copy()
    setattr(wrapped, _MARK, True)
    for path, argument in _RESOURCES.items():
        try:
            resource, plain = attrgetter(path)(wrapped), attrgetter(path)(client)
        except AttributeError:  # of another provider, or an older version
            continue
        for name in ("create", "parse"):
            if hasattr(resource, name):
                calls = getattr(resource, name), getattr(plain, name)
                setattr(resource, name, turns.around(*calls, argument))
        if hasattr(resource, "stream"):  # it calls `create`
            resource.stream = _choose(resource.stream, plain.stream)
    wrapped.copy = wrapped.with_options = lambda **options: _wrap(client.copy(**options), turns)
    return wrapped


def _choose(wrapped: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, recall: bool = True, **options: Any) -> Any:
        return (wrapped if recall else plain)(*args, **options)

    return call


@dataclass
class _Turns:
    """The model calls of one client."""

    memory: AgentMemory
    is_async: bool
    remember: bool
    blocks: TurnBlocks = field(default_factory=TurnBlocks)

    def around(
        self, call: Callable[..., Any], plain: Callable[..., Any], argument: str
    ) -> Callable[..., Any]:
        """Return a method of a client with recall before it and storing after it."""

        def run(*args: Any, **options: Any) -> Any:
            turn = _Turn(self, options, argument)
            if turn.request and (block := turn.known_block()) is None:
                block = turn.keep(turn.owner.recall_block_sync(turn.request))
            answer = call(*args, **turn.add_block(block if turn.request else ""))
            if _is_stream(options, answer):
                answer._iterator = turn.watch(answer._iterator)
            elif stored := turn.messages(_text_of(answer)):
                turn.owner.remember_sync(stored, background=True)
            return answer

        async def run_async(*args: Any, **options: Any) -> Any:
            turn = _Turn(self, options, argument)
            if turn.request and (block := turn.known_block()) is None:
                block = turn.keep(await turn.owner.recall_block(turn.request))
            answer = await call(*args, **turn.add_block(block if turn.request else ""))
            if _is_stream(options, answer):
                answer._iterator = turn.watch_async(answer._iterator)
            elif stored := turn.messages(_text_of(answer)):
                await turn.owner.remember(stored, background=True)
            return answer

        return _choose(run_async if self.is_async else run, plain)


class _Turn:
    """One call: the conversation of its request, and what is stored of it."""

    def __init__(self, turns: _Turns, options: dict[str, Any], argument: str) -> None:
        user, value = options.get("user"), options.get(argument)
        user = user if isinstance(user, str) else None  # the client has a value for "not given"
        self.owner = turns.memory.of(user, is_sync=not turns.is_async)
        self._turns, self._options, self._argument = turns, options, argument
        self._items: list[Any] = []
        if isinstance(value, str):
            self._items = [{"role": "user", "content": value}]
        elif isinstance(value, Iterable) and not isinstance(value, Mapping):
            # An iterator can be read only once.
            self._items = options[argument] = list(value)
        by_user = [i for i, item in enumerate(self._items) if _role(item) == "user"]
        self._index = by_user[-1] if by_user else 0
        self.request = self._items[: self._index + 1] if by_user else []

    def known_block(self) -> str | None:
        """Return the block that an earlier call of the same turn has had."""
        rest = self._items[self._index + 1 :]
        is_new = all(_role(item) in _INSTRUCTIONS for item in rest)
        return None if is_new else self._turns.blocks.get(self.owner, self.request)

    def keep(self, block: str) -> str:
        """Return a block, and keep it for the next calls of the turn."""
        self._turns.blocks.put(self.owner, self.request, block)
        return block

    def add_block(self, block: str | None) -> dict[str, Any]:
        """Return the arguments of the call with the block before the user's message."""
        if not block:
            return self._options
        items = [*self._items]
        items.insert(self._index, {"role": "user", "content": block})
        return {**self._options, self._argument: items}

    def messages(self, answer: str) -> list[Any]:
        """Return what is new in this call: the user's words since the last answer, and the answer.

        Results of tools are not the user's words.
        """
        if not self._turns.remember:
            return []
        others = [i for i, item in enumerate(self._items) if not _is_input(item)]
        new = self._items[others[-1] + 1 if others else 0 :]
        said = [item for item in new if _role(item) == "user"]
        return [*said, {"role": "assistant", "content": answer}] if answer.strip() else said

    def watch(self, events: Iterator[Any]) -> Iterator[Any]:
        """Yield the events of a stream unchanged, and store the turn when the answer is whole."""
        answer = _StreamedAnswer()
        for event in events:
            if answer.add(event) and (stored := self.messages(answer.text)):
                self.owner.remember_sync(stored, background=True)
            yield event

    async def watch_async(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Like `watch`, for an async client."""
        answer = _StreamedAnswer()
        async for event in events:
            if answer.add(event) and (stored := self.messages(answer.text)):
                await self.owner.remember(stored, background=True)
            yield event


@dataclass
class _StreamedAnswer:
    """The text of a stream of either API."""

    text: str = ""
    is_done: bool = False

    def add(self, event: Any) -> bool:
        """Add an event; return True once, when the answer is whole."""
        if self.is_done:
            return False
        if getattr(event, "type", None) in ("response.completed", "response.incomplete"):
            self.text, self.is_done = _text_of(event.response), True
        elif choice := _first_choice(event):
            delta = getattr(choice, "delta", None)
            self.text += getattr(delta, "content", None) or ""
            self.is_done = getattr(choice, "finish_reason", None) is not None
        return self.is_done


def _role(item: object) -> object:
    return item.get("role") if isinstance(item, Mapping) else getattr(item, "role", None)


def _is_input(item: object) -> bool:
    return _role(item) in ("user", *_INSTRUCTIONS)


def _is_stream(options: Mapping[str, Any], answer: object) -> bool:
    return options.get("stream") is True and hasattr(answer, "_iterator")


def _text_of(answer: object) -> str:
    """Return the text of an answer; "" for a raw response, whose body the caller reads."""
    choice = _first_choice(answer)
    text = getattr(answer, "output_text", None)
    text = getattr(getattr(choice, "message", None), "content", text)
    return text if isinstance(text, str) else ""


def _first_choice(answer: object) -> object:
    """Return the choice that the caller is shown; None if there is none."""
    choices = getattr(answer, "choices", None)
    return next((c for c in choices or () if getattr(c, "index", 0) == 0), None)
