"""One turn: forced tool calls, then the model with its tools until it gives a clean answer."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import StringConstraints

from memrecall.agent import RecalledMemory, Recaller, RecallOptions, RecallResult
from memrecall.agent.loop import leaked_families
from memrecall.agent.phrases import to_json
from memrecall.agent.prompt import render
from memrecall.agent.tools import IS_MENTIONED, OTHER_MESSAGES, RECALL_MEMORY
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import ToolInput, ToolOutput
from memrecall.agent.tools.search import MAX_QUERY
from memrecall.agent.tools.table import (
    Interface,
    add_tools,
    function_schemas,
    make_tool,
    normalize_tool_name,
    parse_arguments,
    require_tool,
    tools_for,
)
from memrecall.agent.trace import TraceEvent
from memrecall.budget import Limits
from memrecall.chat.events import ChatEvent, TextChange, ToolCall, ToolResult
from memrecall.chat.visible_text import AnswerReasoning, MemberFilter, VisibleText
from memrecall.errors import (
    CallerError,
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    ModelFailed,
    ScriptExhausted,
)
from memrecall.messages import ConversationMessage
from memrecall.model import protocol
from memrecall.model.failures import to_model_failure
from memrecall.settings import Settings, parse_object
from memrecall.store.database.cursors import require_limit
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import fill_phrase, language_of, read_phrases
from memrecall.text.leaks import LeakMode, Reasoning, check_modes
from memrecall.text.snippets import snippets
from memrecall.text_length import truncate_text
from memrecall.timing import seconds_left
from memrecall.types import Language, Message, Role, format_time

_SAMPLE = 2_000  # characters of a text that are enough to detect its language
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?", re.IGNORECASE)
_ENGLISH_WORDS = """a about all am an and any are as at be but by can could did do does for from had
    has have he her him his how i i'm if in is it it's its me my no not of on or our please said say
    says she so some tell thank thanks that the their them then there they this to us was we were
    what when where which who whose why will with would yes you your"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_CHINESE = re.compile("[的了是我你您他她它吗呢吧呀啊把被请怎哪谁这那什么就都也还不没很在有们]")
_TOO_SHORT = 4  # words or characters, if none is a function word
_LONGEST_QUOTE = 4  # Chinese characters that may be a quoted word


def chat_language(
    latest: Iterable[str], earlier: Iterable[str], strip: Callable[[str], str] = str
) -> Language:
    """Return the language of a chat: Chinese if at least half of the latest messages are.

    Messages too short to judge (a name, a number, “ok”) do not count. If all are, the last of the
    `earlier` ones that is not decides. `strip` removes names, which belong to no language.
    """
    texts = list(latest)
    latest_languages = [detect_language(strip(text[:_SAMPLE])) for text in texts]
    known = [language for language in latest_languages if language is not None]
    if known:
        return "zh" if 2 * known.count("zh") >= len(known) else "en"
    before = (detect_language(strip(text[:_SAMPLE])) for text in reversed(list(earlier)))
    guesses = (language_of(text) for text in reversed(texts))
    return next((language for language in chain(before, guesses) if language is not None), "en")


def detect_language(text: str) -> Language | None:
    """Return the language of a text, or None if it is too short to judge.

    Names of the other language in it do not matter.
    """
    han = len(_HAN.findall(text))
    words = _WORD.findall(text)
    english = any(word.lower().replace("’", "'") in _ENGLISH for word in words)
    chinese = _CHINESE.search(text) is not None
    if not english and not chinese:
        if han + len(words) <= _TOO_SHORT:
            return None
        return "zh" if han else "en"
    if not english:
        return "zh"
    if not chinese:
        return "zh" if han > 2 * len(words) else "en"
    return "zh" if han >= _LONGEST_QUOTE and 2 * han >= len(words) else "en"


_PHRASES = read_phrases(Path(__file__).with_name("phrases.json"))


tell = partial(fill_phrase, _PHRASES)


class TextAnswer(ToolOutput):
    """A text for the model of a chat turn."""

    content: str
    is_error: bool = False
    results: int = 0  # recalled events, or messages


@dataclass(slots=True, kw_only=True)
class TurnContext(ToolContext):
    """The context of one chat turn."""

    recall_query: Callable[[str], Awaitable[TextAnswer]]  # counted against the cap of the turn
    answers: Mapping[str, TextAnswer] = field(default_factory=dict)  # of tools without arguments


class ChatRecallArguments(ToolInput):
    """Arguments of `recall_memory`."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class NoArguments(ToolInput):
    """Arguments of the tools that take none."""


async def recall_memory(context: TurnContext, arguments: ChatRecallArguments) -> TextAnswer:
    """Recall within the cap of the turn."""
    return await context.recall_query(arguments.query[:MAX_QUERY])


async def get_other_members_messages(context: TurnContext, _: NoArguments) -> TextAnswer:
    """Return what the other members of the group wrote since the speaker's last message."""
    return context.answers[OTHER_MESSAGES]


async def is_mentioned(context: TurnContext, _: NoArguments) -> TextAnswer:
    """Return whether the speaker is mentioned in this turn."""
    return context.answers[IS_MENTIONED]


_GROUP = frozenset({Interface.GROUP_CHAT})
_make_tool = partial(make_tool, interfaces=_GROUP, prompt="chat_tools")
add_tools(
    _make_tool(recall_memory, RECALL_MEMORY, interfaces=_GROUP | {Interface.CHAT}),
    _make_tool(get_other_members_messages, OTHER_MESSAGES),
    _make_tool(is_mentioned, IS_MENTIONED),
)


_log = logging.getLogger(__name__)

Events = AsyncGenerator[ChatEvent, None]

ASSISTANT, USER = "assistant", "user"  # AutoGen sends sources as names, which must be ASCII
LONGEST_SHOWN = 500  # messages
ANSWER_CHARACTERS = 6_000
_GRACE = 2.0  # seconds beyond the limit that a recall keeps itself
_ID_LENGTH = 24
_EXAMPLE = '{"recalls": 3, "history": 20, "extract": true}'


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of chat turns. A turn recalls at least once, even with `recalls` 0."""

    recalls: int = 3  # at most, in one turn
    count_forced: bool = True  # the forced recall counts as one of them
    recall_seconds: float = 10.0  # limit of one recall; after it the turn continues without
    seconds: float = 120.0  # limit of all model calls in one turn
    model_calls: int = 8  # at most, in one turn; the last one gets no tools
    tool_calls: int = 16  # of the model, at most, in one turn; further ones are refused
    history: int = 20  # messages of the session that the model is shown
    history_characters: int = 24_000
    view: int = 100  # messages of the others that a group member is shown
    language: Language | None = None  # None: the language of the message
    keep_traces_days: int = 30  # of the recalls; 0 stores none
    log_contents: bool = False  # logs the arguments of tool calls, which quote messages
    leak_mode: LeakMode = "strict"  # "lenient" leaves Markdown code alone, for developers
    reasoning: Reasoning = "auto"  # of the model, if it writes it into its text
    extract: bool = False  # also remember the facts that people state
    recall_with_model: bool = False  # recall with the model that answers; otherwise offline

    def __post_init__(self) -> None:
        bounds = {
            "recalls": (0, 100),
            "model_calls": (1, 100),
            "tool_calls": (0, 1_000),
            "history": (0, LONGEST_SHOWN),
            "view": (1, LONGEST_SHOWN),
        }
        for name, (least, most) in bounds.items():
            require_limit(name, getattr(self, name), most, least)
        check_modes(self.reasoning, self.leak_mode)
        if self.recall_seconds <= 0 or self.seconds <= 0:
            raise InvalidArgument(
                f"recall_seconds {self.recall_seconds} and seconds {self.seconds} must be positive",
                hint="Leave them out for the defaults",
            )

    @classmethod
    def of(
        cls, settings: Settings, language: Language | None = None, *, extract: bool = False
    ) -> ChatOptions:
        """Return the options of the settings; `extract` counts unless they decide it."""
        values: dict[str, Any] = {"extract": extract, "keep_traces_days": settings.trace_days}
        values |= parse_object("chat", settings.chat, _EXAMPLE)
        if language is not None:
            values["language"] = language
        try:
            return cls(**values)
        except TypeError as error:  # an unknown name, or a value of the wrong type
            raise InvalidArgument(
                f"chat {settings.chat!r}: {error}", hint=f"Write it like {_EXAMPLE}"
            ) from None

    @property
    def own_recalls(self) -> int:
        """The number of recalls that the model itself may request in a turn."""
        return max(self.recalls - self.count_forced, 0)

    def recall_options(self, language: Language) -> RecallOptions:
        """Return the options of one recall in a turn."""
        return RecallOptions(
            limits=Limits(seconds=self.recall_seconds),
            language=language,
            keep_traces_days=self.keep_traces_days,
        )


def fit_texts(texts: Sequence[str], budget: int, shortest: int = 200) -> list[str]:
    """Truncate the longest texts so that all fit a budget of characters.

    What short texts do not use is shared by the long ones. No text is cut below `shortest`.
    """
    limit = 0
    for index, length in enumerate(sorted(map(len, texts))):
        share = budget // (len(texts) - index)
        limit = min(length, share)
        if length > share:
            break  # the longer texts have the same share
        budget -= length
    return [truncate_text(text, max(limit, shortest)) for text in texts]


def untruncated(messages: Sequence[Message], texts: Sequence[str]) -> list[Message]:
    """Return the messages whose texts are shown in full."""
    pairs = zip(messages, texts, strict=True)
    return [message for message, text in pairs if message.content == text]


class TurnRecalls:
    """The recalls of one turn; a failed recall does not fail the turn."""

    def __init__(
        self,
        recaller: Recaller,
        messages: Sequence[ConversationMessage],
        options: ChatOptions,
        language: Language,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self.recaller = recaller
        self.options = options
        self.language = language
        self._messages = tuple(messages)
        self._remaining = options.own_recalls
        self._on_leak = on_leak
        self.count = 0
        self.keys: dict[str, None] = {}  # of the recalled memories, in order
        self.latest: list[dict[str, Any]] = []  # events for a request for all that is known

    async def force(self) -> TextAnswer:
        """Run the recall that every turn makes, for its messages."""
        return await self._recall(self._messages)

    async def ask(self, query: str) -> TextAnswer:
        """Run a recall for the model, or refuse it beyond the limit."""
        if self._remaining <= 0:
            note = tell(self.language, "cap_reached", cap=self.options.recalls)
            return TextAnswer(content=_empty(note), is_error=True)
        self._remaining -= 1
        return await self._recall([*self._messages, ConversationMessage(Role.USER, query)])

    async def _recall(self, messages: Sequence[ConversationMessage]) -> TextAnswer:
        self.count += 1
        try:
            async with asyncio.timeout(self.options.recall_seconds + _GRACE):
                result = await self.recaller.recall(messages, observer=self._observe)
        except (CassetteMismatch, ScriptExhausted):
            raise  # A mismatched cassette and an exhausted script are errors of the caller.
        except Exception as error:  # Whatever fails here, the turn must be answered.
            return self._failure(type(error).__name__)
        return self._to_answer(result, messages[-1].text)

    def _observe(self, event: TraceEvent) -> None:
        if self._on_leak is not None:
            for family in leaked_families(event):
                self._on_leak(family)

    def _failure(self, reason: str) -> TextAnswer:
        _log.warning("a turn continues without its recall: %s", reason)
        return TextAnswer(content=_empty(tell(self.language, "recall_failed")), is_error=True)

    def _to_answer(self, result: RecallResult, query: str) -> TextAnswer:
        if not result.handoff.success:
            return self._failure(result.stop_reason.value)
        count = result.withheld
        withheld = tell(self.language, "withheld", count=count) if count else ""
        if not result.memories:
            note = withheld or tell(self.language, "nothing_recalled")
            return TextAnswer(content=_empty(note, self.latest))
        # For a recalled answer its own sources are noted, so that chains of answers stay short.
        for memory in result.memories:
            self.keys.update(dict.fromkeys(memory.made_from or [memory.memory_key]))
        payload = {
            "events": memory_events(result.memories, query, self.language),
            "confidence": round(result.confidence, 2),
            "certainty": result.certainty.value,
            **({"note": withheld} if withheld else {}),
            **({"latest": self.latest} if self.latest else {}),
        }
        return TextAnswer(content=to_json(payload), results=len(result.memories))


def _empty(note: str, latest: Sequence[dict[str, Any]] = ()) -> str:
    more = {"latest": latest} if latest else {}
    return to_json({"events": [], "note": note, **more})


def memory_events(
    memories: Sequence[RecalledMemory], query: str, language: Language
) -> list[dict[str, Any]]:
    """Return memories as events, in order; long ones are cut to the passage about the query."""
    texts = fit_texts([memory.content for memory in memories], ANSWER_CHARACTERS)
    words = [keyword.word for keyword in extract_keywords(query[:MAX_QUERY])]
    events: list[dict[str, Any]] = []
    for memory, text in zip(memories, texts, strict=True):
        event: dict[str, Any] = {"time": format_time(memory.ts)}
        if memory.by:
            event["speaker"] = memory.by
        if memory.kind == "message" and memory.valid_to is not None:  # what it says is superseded
            event["outdated_since"] = format_time(memory.valid_to)
        if text != memory.content:
            passages = snippets(
                memory.content, words, length=len(text), limit=1, before="", after=""
            )
            text = passages[0]
        event |= {"text": text, "key": memory.memory_key}
        # A search that gave no probability has a score.
        score = memory.relevance_score if memory.probability is None else memory.probability
        if score is not None:
            event["score"] = round(score, 2)
        events.append(event | memory.describe_certainty(language))
    return events


class TurnTools:
    """The tools of one turn; `answers` holds the results of the group's tools without arguments."""

    def __init__(
        self, recalls: TurnRecalls, answers: Mapping[str, TextAnswer] | None = None
    ) -> None:
        self.recalls = recalls
        self._remaining = recalls.options.tool_calls
        self._interface = Interface.GROUP_CHAT if answers else Interface.CHAT
        self._context = TurnContext(
            library=recalls.recaller.library,
            scope=recalls.recaller.scope,
            language=recalls.language,
            recall_query=recalls.ask,
            answers=dict(answers or {}),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tools_for(self._interface))

    @property
    def schemas(self) -> tuple[protocol.ToolSchema, ...]:
        """The schemas for the model."""
        return function_schemas(self._interface, self._context.language)

    async def force(self, call: protocol.FunctionCall) -> protocol.FunctionExecutionResult:
        """Run a forged call; its recall does not count as one of the model's."""
        if call.name == RECALL_MEMORY:
            answer = await self.recalls.force()
        else:
            answer = self._context.answers[call.name]
        self._log(call, answer, "forged")
        return _result(call, answer)

    async def run(self, call: protocol.FunctionCall) -> protocol.FunctionExecutionResult:
        """Run a call of the model; an invalid call gets an error result."""
        language = self._context.language
        try:
            if self._remaining <= 0:
                cap = self.recalls.options.tool_calls
                raise InvalidArgument(tell(language, "too_many_calls", cap=cap))
            self._remaining -= 1
            tool = require_tool(normalize_tool_name(call.name), self._interface, language)
            arguments = parse_arguments(tool, call.arguments, lenient=True, language=language)
            result = await tool.run(self._context, arguments)
            if isinstance(result, TextAnswer):
                answer = result
            else:
                answer = TextAnswer(content=render(result, language))
        except MemrecallError as error:
            answer = TextAnswer(content=str(error), is_error=True)
        self._log(call, answer, "called")
        return _result(call, answer)

    def _log(self, call: protocol.FunctionCall, answer: TextAnswer, how: str) -> None:
        """Log a call by name and sizes, and its arguments only if contents may be logged."""
        name = normalize_tool_name(call.name)
        _log.info(
            "%s (%s) returned: characters in %d, results %d, characters out %d%s%s",
            name if name in self.names else "an unknown tool",
            how,
            len(call.arguments),
            answer.results,
            len(answer.content),
            ", failed" if answer.is_error else "",
            f": {call.arguments}" if self.recalls.options.log_contents else "",
        )


def _result(call: protocol.FunctionCall, answer: TextAnswer) -> protocol.FunctionExecutionResult:
    return protocol.FunctionExecutionResult(
        content=answer.content, name=call.name, call_id=call.id, is_error=answer.is_error
    )


@dataclass(slots=True)
class TurnStart:
    """What a turn begins with: the context, the tools and the forced calls."""

    messages: list[protocol.LLMMessage]
    tools: TurnTools
    forged: Sequence[protocol.FunctionCall]
    language: Language
    names: Sequence[str] = ()  # of the group member that answers
    others: Sequence[str] = ()  # the names of the other members
    may_pass: bool = False  # silence is an answer


class Turn:
    """One turn; after `play`, `visible`, `degraded`, `silent` and `usage` are its outcome."""

    def __init__(
        self,
        client: protocol.ChatCompletionClient,
        start: TurnStart,
        options: ChatOptions,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self.model = str(getattr(client, "model", "") or type(client).__name__)
        member_filter = (
            MemberFilter(start.names, start.others, may_pass=start.may_pass)
            if start.names
            else None
        )
        self.visible = VisibleText(
            start.tools.names,
            self.model,
            AnswerReasoning(client, options.reasoning),
            mode=options.leak_mode,
            member_filter=member_filter,
            on_leak=on_leak,
        )
        self.degraded = False
        self.silent = False
        self.finish_reason = "stop"
        self.model_calls = 0
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0}
        self._client = client
        self._start = start
        self._messages = list(start.messages)
        self._most_calls = options.model_calls
        self._seconds = options.seconds
        self._without_tools = not client.model_info["function_calling"]
        self._reply: protocol.CreateResult | None = None
        self._is_over = False
        self._ids = {call.id for call in start.forged}

    @property
    def recalls(self) -> int:
        """The number of recalls that were run."""
        return self._start.tools.recalls.count

    @property
    def sources(self) -> tuple[str, ...]:
        """The keys of the recalled memories, in order."""
        return tuple(self._start.tools.recalls.keys)

    async def play(self) -> Events:
        """Yield the turn's events; raise ModelFailed if the model cannot answer."""
        for call in self._start.forged:
            async for event in self._run_calls([call], forged=True):
                yield event
        deadline = time.monotonic() + min(self._seconds, seconds_left(self._seconds))
        while not self._is_over and self.model_calls < self._most_calls:
            async with aclosing(self._play_round(deadline)) as events:
                async for event in events:
                    yield event
        if self.degraded and not self.visible.text:
            for event in self.visible.add(tell(self._start.language, "no_answer")):
                yield event

    async def _play_round(self, deadline: float) -> Events:
        """Ask the model once; run its tool calls or end the turn.

        If the answer is not clean, the next round asks again without tools.
        """
        without_tools = self._without_tools or self.model_calls == self._most_calls - 1
        async with aclosing(self._ask(without_tools, deadline)) as deltas:
            async for delta in deltas:
                yield delta
        if self._reply is None:  # the server refuses requests with tools
            self._without_tools = True
            return
        content = self._reply.content
        if not isinstance(content, str) and content and not without_tools:
            calls = [self._with_unique_id(call) for call in content]
            async for event in self._run_calls(calls, self._reply.thought):
                yield event
            return
        is_answered = isinstance(content, str) and self._is_answered(without_tools)
        self._is_over = is_answered or without_tools
        self.degraded = without_tools and not is_answered
        self._without_tools = True

    def _is_answered(self, without_tools: bool) -> bool:
        """Return True if the answer is clean text, or a silence that is allowed.

        What it said before its last call is an answer too, unless it had to stop calling.
        """
        visible = self.visible
        self.silent = visible.is_silent and self._start.may_pass and not visible.text
        has_text = visible.has_text or (visible.is_repeated and not without_tools)
        return self.silent or (has_text and not visible.has_leaks)

    async def _ask(self, without_tools: bool, deadline: float) -> AsyncGenerator[TextChange, None]:
        """Yield the text events of one answer; set `_reply`, or None if tools are refused."""
        self._reply = None
        self.visible.begin()
        self.model_calls += 1
        messages, tools = self._messages, self._start.tools.schemas
        if without_tools:
            messages = remove_calls(messages, self.visible.text, self._start.language)
            tools = ()
        try:
            async with aclosing(self._client.create_stream(messages, tools=tools)) as chunks:
                is_streamed = False
                while (chunk := await self._next(chunks, deadline)) is not None:
                    if isinstance(chunk, protocol.CreateResult):
                        self._reply = chunk
                        self.finish_reason = chunk.finish_reason
                        self.usage["prompt_tokens"] += chunk.usage.prompt_tokens
                        self.usage["completion_tokens"] += chunk.usage.completion_tokens
                        is_new = isinstance(chunk.content, str) and not is_streamed
                        chunk = str(chunk.content) if is_new else ""
                    is_streamed = is_streamed or bool(chunk)
                    for event in self.visible.feed(chunk):
                        yield event
            has_calls = self._reply is not None and not isinstance(self._reply.content, str)
            for event in self.visible.end(has_calls=has_calls):
                yield event
        except ModelFailed as error:
            if error.kind != "no_tools" or without_tools:
                raise
        finally:  # The consumer of the events may stop too.
            self.visible.abort()
        if self._reply is None and without_tools:
            raise ModelFailed(f"{self.model} ended without a result", kind="malformed")

    async def _next(
        self, chunks: AsyncGenerator[str | protocol.CreateResult, None], deadline: float
    ) -> str | protocol.CreateResult | None:
        """Return the next chunk before the deadline; raise ModelFailed or CallerError."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                return await anext(chunks, None)
        except (CallerError, ModelFailed):
            raise  # A mismatched cassette and an exhausted script are errors of the caller.
        except TimeoutError:
            message = f"{self.model} did not answer in {self._seconds:g} seconds"
            raise ModelFailed(message, kind="timeout") from None
        except Exception as error:  # Clients of other packages raise errors of any type.
            raise to_model_failure(error) from error

    async def _run_calls(
        self,
        calls: list[protocol.FunctionCall],
        thought: str | None = None,
        *,
        forged: bool = False,
    ) -> Events:
        run = self._start.tools.force if forged else self._start.tools.run
        results = []
        for call in calls:
            yield ToolCall(call.id, call.name, call.arguments, forged)
            result = await run(call)
            results.append(result)
            yield ToolResult(call.id, call.name, result.content, bool(result.is_error), forged)
        self._messages += [
            protocol.AssistantMessage(content=calls, thought=thought, source=ASSISTANT),
            protocol.FunctionExecutionResultMessage(content=results),
        ]

    def _with_unique_id(self, call: protocol.FunctionCall) -> protocol.FunctionCall:
        """Return the call with an id that is unique in the turn: some servers repeat ids."""
        call_id, number = call.id, len(self._ids)
        while not call_id or call_id in self._ids:
            number += 1
            call_id = f"call_{number}"
        self._ids.add(call_id)
        return replace(call, id=call_id)


def forge_call(turn: str, name: str, arguments: str) -> protocol.FunctionCall:
    """Return a call whose id depends only on the turn, the tool and the arguments."""
    digest = hashlib.sha256(f"{turn}\0{name}\0{arguments}".encode()).hexdigest()
    return protocol.FunctionCall(id=f"call_{digest[:_ID_LENGTH]}", name=name, arguments=arguments)


def remove_calls(
    messages: Sequence[protocol.LLMMessage], answer: str, language: Language
) -> list[protocol.LLMMessage]:
    """Return the context for a request without tools: results as data, calls left out.

    Calls in a context without tools make models write calls as text. The part of the answer that
    was already shown comes last, before the request for plain text.
    """
    plain: list[protocol.LLMMessage] = []
    for message in messages:
        if isinstance(message, protocol.FunctionExecutionResultMessage):
            for result in message.content:
                text = tell(language, "as_data", tool=result.name, content=result.content)
                plain.append(protocol.UserMessage(content=text, source=USER))
        elif not isinstance(message, protocol.AssistantMessage) or isinstance(message.content, str):
            plain.append(message)
    if answer:
        plain.append(protocol.AssistantMessage(content=answer, source=ASSISTANT))
    plain.append(protocol.UserMessage(content=tell(language, "answer_in_words"), source=USER))
    return plain
