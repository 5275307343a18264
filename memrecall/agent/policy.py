"""What decides the steps of a recall: the protocol, and a model behind the prompt.

The policy without a model is in `memrecall.agent.offline`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from memrecall.agent.phrases import to_json
from memrecall.agent.prompt import LARGEST_ANSWER, Prompt, bound_text, write_briefing, write_hint
from memrecall.agent.result import Recorder
from memrecall.agent.state import (
    MAX_CONSECUTIVE_SEARCHES,
    KeywordModel,
    KeywordReply,
    RecallState,
)
from memrecall.agent.tools import EXPANSION, SEARCH
from memrecall.agent.tools.models import ExtractKeywordsInput
from memrecall.agent.tools.table import (
    Interface,
    forced_handoff,
    function_schemas,
    schema_text,
    tools_for,
)
from memrecall.agent.trace import ModelEvent
from memrecall.budget import Budget, Limit
from memrecall.errors import CallerError, InvalidArgument, ModelFailed
from memrecall.json_objects import make_storable
from memrecall.model import protocol
from memrecall.model.failures import create_accepted, to_model_failure
from memrecall.model.prompts import load_prompt
from memrecall.model.protocol import message_texts
from memrecall.model.structured import SOURCE, Structured, ask_json
from memrecall.text_length import estimate_tokens

LARGEST_PROMPT = 100_000  # characters; longer prompts are shortened before the model refuses
_SMALLEST_TURN = 1_300  # characters of a hint, and of a shortened call with its result
_PERMANENT_FAILURES = frozenset({"authentication", "quota", "refused"})
# Seconds, and share of the time, reserved for the offline policy if the model never answers.
_RESERVE_SECONDS, _RESERVE_SHARE = 5.0, 0.2


@dataclass(frozen=True, slots=True)
class RecallStep:
    """The next step of a recall: tool calls, or a text instead of them."""

    calls: Sequence[protocol.FunctionCall] = ()
    text: str = ""
    thought: str | None = None
    dropped: int = 0  # calls that are too many even to refuse one by one
    is_truncated: bool = False
    is_refusal: bool = False


class RecallPolicy(Protocol):
    """Decides the steps of one recall from its state."""

    name: str
    keyword_model: KeywordModel | None  # None: keywords come from the text

    def begin_iteration(self) -> str:
        """Begin an iteration over the window of the state; return why it cannot, or ""."""
        ...

    async def decide(self, last: Limit | None) -> RecallStep:
        """Return the next step; `last` is the limit that allows nothing but a handoff.

        Raises ModelFailed or TimeoutError.
        """
        ...

    def can_retry(self, error: ModelFailed) -> bool:
        """Return True if another attempt may succeed after an error."""
        ...


class ModelPolicy:
    """Shows the state to a model as a prompt; the model's answers are the steps."""

    def __init__(
        self,
        client: protocol.ChatCompletionClient,
        state: RecallState,
        budget: Budget,
        recorder: Recorder,
        largest_prompt: int = LARGEST_PROMPT,
    ) -> None:
        self.name = str(getattr(client, "model", "") or type(client).__name__)
        self.keyword_model: KeywordModel | None = self._extract_keywords
        self._client = client
        self._state = state
        self._budget = budget
        self._recorder = recorder
        self._largest_prompt = largest_prompt
        self._reserve = min(_RESERVE_SECONDS, _RESERVE_SHARE * budget.limits.seconds)
        self._failures = 0  # in a row
        self._prompt = Prompt([])
        self._rendered = 0  # turns of the state that are part of the prompt

    def begin_iteration(self) -> str:
        """Write the briefing; raise InvalidArgument if even the first window is too long."""
        language = self._state.language
        self._prompt = Prompt(
            [
                protocol.SystemMessage(content=load_prompt("recall", language)),
                protocol.UserMessage(content=write_briefing(self._state), source=SOURCE),
            ],
            schema_text(language),
        )
        self._rendered = 0
        largest, smallest = self._largest_prompt, self._prompt.characters + _SMALLEST_TURN
        if smallest <= largest:
            return ""
        if self._state.window.iteration == 1:
            raise InvalidArgument(
                f"largest_prompt is {largest}, and this window needs {smallest} characters",
                hint=f"Use {smallest} or more, or a smaller first_window",
            )
        return self._state.say("prompt_too_small", largest=largest, smallest=smallest)

    async def decide(self, last: Limit | None) -> RecallStep:
        """Call the model; its last call can only be a handoff."""
        language = self._state.language
        for message in self._state.turns[self._rendered :]:
            self._prompt.append(message)
        self._rendered = len(self._state.turns)
        refused = set() if self._state.window.can_grow else {EXPANSION}
        if self._state.consecutive_searches >= MAX_CONSECUTIVE_SEARCHES:
            refused.add(SEARCH)
        usable = [name for name in tools_for(Interface.RECALL) if name not in refused]
        hint = write_hint(language, self._budget, usable, last=last)
        self._prompt.shrink(self._largest_prompt - len(hint))
        reply = await self._call(
            self._prompt,
            protocol.UserMessage(content=hint, source=SOURCE),
            purpose="recall",
            tools=function_schemas(Interface.RECALL, language),
            tool_choice=forced_handoff(language) if last else "required",
        )
        self._failures = 0
        thought = reply.thought and bound_text(reply.thought)
        is_truncated = reply.finish_reason == "length"
        if isinstance(reply.content, str):
            return RecallStep(
                text=bound_text(reply.content),
                thought=thought,
                is_truncated=is_truncated,
                is_refusal=reply.finish_reason == "content_filter",
            )
        return RecallStep(
            reply.content[:LARGEST_ANSWER],
            thought=thought,
            dropped=max(len(reply.content) - LARGEST_ANSWER, 0),
            is_truncated=is_truncated,
        )

    def can_retry(self, error: ModelFailed) -> bool:
        """Return True after a first failure that may pass; a prompt that is too long is cut."""
        self._failures += 1
        if self._failures > 1 or error.kind in _PERMANENT_FAILURES:
            return False
        return error.kind != "overflow" or self._prompt.shrink(self._prompt.characters // 2)

    async def _extract_keywords(self, arguments: ExtractKeywordsInput) -> Structured[KeywordReply]:
        """Ask the model for the keywords of a query."""
        content = to_json(arguments.model_dump(exclude_none=True))
        messages: list[protocol.LLMMessage] = [
            protocol.SystemMessage(content=load_prompt("keywords", self._state.language)),
            protocol.UserMessage(content=content, source=SOURCE),
        ]
        try:
            return await ask_json(self._ask_for_keywords, messages, KeywordReply)
        except ModelFailed as error:
            return Structured(None, problem=error.message)

    async def _ask_for_keywords(
        self, messages: Sequence[protocol.LLMMessage]
    ) -> protocol.CreateResult:
        if (limit := self._budget.last_call()) is not None:  # the last one is for the handoff
            raise ModelFailed(f"the limit on {limit}", kind="quota")
        json_output = self._client.model_info["json_output"] or None
        return await self._call(Prompt(messages), purpose="keywords", json_output=json_output)

    async def _call(
        self,
        prompt: Prompt,
        *hints: protocol.LLMMessage,
        purpose: str,
        tools: Sequence[protocol.ToolSchema] = (),
        tool_choice: protocol.Tool | str = "auto",
        json_output: bool | None = None,
    ) -> protocol.CreateResult:
        """Call the model once within the remaining time; count and record the call.

        Hints follow the prompt and are not kept in it.
        Raises ModelFailed or TimeoutError. A cassette mismatch and an exhausted test script pass
        through, because the caller has to fix them.
        """
        started = time.monotonic()
        choice = tool_choice if isinstance(tool_choice, str) else tool_choice.name
        characters = prompt.characters + sum(len(text) for m in hints for text in message_texts(m))
        event = ModelEvent(purpose=purpose, tool_choice=choice, characters=characters)
        try:
            async with asyncio.timeout(max(self._budget.seconds_left - self._reserve, 0.0)):
                reply = await create_accepted(
                    self._client,
                    [*prompt.messages, *hints],
                    tools=tools,
                    tool_choice=tool_choice,
                    json_output=json_output,
                )
            reply = _make_valid(reply)
            _add_usage(event, reply, prompt)
        except (CallerError, ModelFailed, TimeoutError) as error:
            problem = error.message if isinstance(error, ModelFailed) else str(error)
            event.failed = problem or "no answer within the remaining time"
            raise
        except Exception as error:  # third-party clients raise errors of any type
            event.failed = type(error).__name__
            raise to_model_failure(error) from error
        finally:
            seconds = time.monotonic() - started
            self._budget.spend_model_call(
                event.characters,
                event.prompt_tokens,
                event.completion_tokens,
                seconds,
                event.estimated_tokens or 0,
            )
            event.seconds = round(seconds, 4)
            self._recorder.add(event)
        return reply


def _add_usage(event: ModelEvent, reply: protocol.CreateResult, prompt: Prompt) -> None:
    """Set the tokens of a call, estimated if the server reports none."""
    # Clients of others may pass on a negative number, which would raise the limit.
    sent = max(reply.usage.prompt_tokens, 0)
    answered = max(reply.usage.completion_tokens, 0)
    estimated = 0
    if not sent:
        sent = estimated = prompt.estimate_tokens()
        if not answered:
            answered = sum(map(estimate_tokens, _reply_texts(reply)))
            estimated += answered
    event.prompt_tokens, event.completion_tokens = sent, answered
    event.estimated_tokens = estimated or None


def _make_valid(reply: protocol.CreateResult) -> protocol.CreateResult:
    """Return an answer whose texts can be stored and written as UTF-8."""
    texts = _reply_texts(reply)
    if (valid := make_storable(texts)) == texts:
        return reply
    thought, *rest = valid
    content: str | list[protocol.FunctionCall] = rest[0] if isinstance(reply.content, str) else []
    if not isinstance(content, str):
        content = list(map(protocol.FunctionCall, rest[::3], rest[1::3], rest[2::3]))
    update = {"content": content, "thought": thought if reply.thought else None}
    return reply.model_copy(update=update)


def _reply_texts(reply: protocol.CreateResult) -> list[str]:
    """Return the thought, then the text, or the id, arguments and name of each call."""
    thought, content = reply.thought or "", reply.content
    if isinstance(content, str):
        return [thought, content]
    return [thought, *(text for c in content for text in (c.id, c.arguments, c.name))]
