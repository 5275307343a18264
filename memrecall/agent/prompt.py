"""The prompt of the recall's model: its messages, and the texts that vary.

The texts that vary are tool results, briefings and hints; they follow the static prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from memrecall.agent.phrases import say, say_codes, to_json
from memrecall.agent.state import SHORTEST_MESSAGE, RecallState
from memrecall.agent.tools.models import GetMemoryDetailOutput, SearchMemoriesOutput
from memrecall.budget import Budget, Limit
from memrecall.json_objects import load_json_object
from memrecall.model import protocol
from memrecall.model.protocol import message_texts
from memrecall.text_length import estimate_tokens, truncate_text
from memrecall.types import Language

LARGEST_TEXT = 4_000  # characters of a text, a thought or arguments that a model wrote
LARGEST_ANSWER = 256  # calls of one answer that are kept; the model is told of the others
_SHORTENED = 200  # characters
_NO_ARGUMENTS = "{}"
# Servers refuse a request in which an earlier call has another name.
_UNUSABLE_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_LARGEST_NAME = 64
SEARCH_CHARACTERS = 2_900
DETAIL_CHARACTERS = 4_000
_KEYWORDS_PER_RESULT = 5
_FULL_PREVIEW = 200
_MESSAGE_CHARACTERS = 500
# Preview lengths and result counts, tried in order until the text fits.
_SEARCH_SIZES = [(size, 10) for size in (_FULL_PREVIEW, 150, 110, 80, 50, 30, 15, 0)]
_SEARCH_SIZES += [(0, 5), (0, 1)]
_HITS_IN_BRIEFING = 8
_WEEKDAYS: dict[Language, tuple[str, ...]] = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "zh": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
}


class Prompt:
    """The messages of a recall's model calls; `tools` is the text of the tools' schemas."""

    def __init__(self, messages: Iterable[protocol.LLMMessage], tools: str = "") -> None:
        self.messages: list[protocol.LLMMessage] = []
        self.characters = len(tools)
        self._tools = tools
        self._tokens = 0
        self._uncounted = [tools]  # texts that are not part of the tokens yet
        for message in messages:
            self.append(message)
        self._fixed = len(self.messages)  # those at the start are never shortened

    def append(self, message: protocol.LLMMessage) -> None:
        """Add a message at the end."""
        texts = _texts(message)
        self.messages.append(message)
        self.characters += sum(map(len, texts))
        self._uncounted += texts

    def estimate_tokens(self) -> int:
        """Return an estimate of the tokens; every text is counted once."""
        self._tokens += sum(map(estimate_tokens, self._uncounted))
        self._uncounted = []
        return self._tokens

    def shrink(self, largest: int) -> bool:
        """Shorten earlier turns, drop them, and shorten the last turn, until the prompt fits.

        If that is not enough, the last turn loses its first calls and their results.

        Returns True if the prompt has become smaller.
        """
        before = self.characters
        if before > largest:
            last_turn = self._start_of_turn(len(self.messages) - 1)
            self._shorten(range(self._fixed, last_turn), largest)
            self._drop_turns(largest)
            self._shorten(range(self._fixed, len(self.messages)), largest)
            self._drop_calls(largest)
            texts = [text for message in self.messages for text in _texts(message)]
            self._tokens, self._uncounted = 0, [self._tools, *texts]
        return self.characters < before

    def _start_of_turn(self, index: int) -> int:
        while index > self._fixed and not isinstance(
            self.messages[index], protocol.AssistantMessage
        ):
            index -= 1
        return max(index, self._fixed)

    def _shorten(self, indices: range, largest: int) -> None:
        for index in indices:
            if self.characters <= largest:
                return
            message = self.messages[index]
            self.messages[index] = _shorten(message)
            self.characters -= _count_characters(message)
            self.characters += _count_characters(self.messages[index])

    def _drop_turns(self, largest: int) -> None:
        """Drop whole turns, oldest first: a call must keep its result, and a result its call."""
        last_turn = self._start_of_turn(len(self.messages) - 1)
        while self.characters > largest and last_turn > self._fixed:
            end = self._fixed + 1
            while end < last_turn and not isinstance(self.messages[end], protocol.AssistantMessage):
                end += 1
            self.characters -= sum(map(_count_characters, self.messages[self._fixed : end]))
            del self.messages[self._fixed : end]
            last_turn -= end - self._fixed

    def _drop_calls(self, largest: int) -> None:
        """Drop calls of the last turn with their results, first ones first; one remains."""
        start = self._start_of_turn(len(self.messages) - 1)
        match self.messages[start : start + 2]:
            case [
                protocol.AssistantMessage(content=list() as calls) as answer,
                protocol.FunctionExecutionResultMessage(content=results),
            ]:
                while self.characters > largest and len(calls) > 1:
                    pair = _turn(answer, calls[:1], results[:1], thought=None)
                    self.characters -= sum(map(_count_characters, pair))
                    calls, results = calls[1:], results[1:]
                self.messages[start : start + 2] = _turn(answer, calls, results, answer.thought)


def bound_text(text: str) -> str:
    """Return a text of a model as it is kept and sent back."""
    return truncate_text(text, LARGEST_TEXT, f"… [{len(text)} characters]")


def identify_calls(
    calls: Iterable[protocol.FunctionCall], used_ids: set[str]
) -> list[protocol.FunctionCall]:
    """Return the calls with ids that no other call has, and with short names."""
    result = []
    for call in calls:
        # AutoGen's client passes on that a server sent no id.
        call_id = (call.id or "")[:_LARGEST_NAME]
        number = len(used_ids) + 1
        while not call_id or call_id in used_ids:
            call_id = f"call_{number}"
            number += 1
        used_ids.add(call_id)
        name = truncate_text(call.name, 2 * _LARGEST_NAME)
        result.append(protocol.FunctionCall(id=call_id, name=name, arguments=call.arguments))
    return result


def call_to_resend(call: protocol.FunctionCall, tool: str) -> protocol.FunctionCall:
    """Return a call of `tool` as it is sent back: servers refuse invalid names and arguments."""
    name = _UNUSABLE_IN_NAMES.sub("_", tool)[:_LARGEST_NAME] or "unknown"
    is_long = len(call.arguments) > LARGEST_TEXT
    is_usable = not is_long and load_json_object(call.arguments) is not None
    arguments = call.arguments if is_usable else _NO_ARGUMENTS
    return protocol.FunctionCall(id=call.id, name=name, arguments=arguments)


def _texts(message: protocol.LLMMessage) -> list[str]:
    """Return all that is sent of a message: its texts, its thought, and the ids of its calls."""
    texts = message_texts(message)
    match message:
        case protocol.FunctionExecutionResultMessage(content=results):
            texts += [f"{result.call_id} {result.name}" for result in results]
        case protocol.AssistantMessage(content=list() as calls):
            texts += [call.id for call in calls]
    thought = message.thought if isinstance(message, protocol.AssistantMessage) else None
    return [*texts, thought] if thought else texts


def _count_characters(message: protocol.LLMMessage) -> int:
    return sum(map(len, _texts(message)))


def _turn(
    answer: protocol.AssistantMessage,
    calls: list[protocol.FunctionCall],
    results: list[protocol.FunctionExecutionResult],
    thought: str | None,
) -> list[protocol.LLMMessage]:
    return [
        protocol.AssistantMessage(content=calls, thought=thought, source=answer.source),
        protocol.FunctionExecutionResultMessage(content=results),
    ]


def _shorten(message: protocol.LLMMessage) -> protocol.LLMMessage:
    match message:
        case protocol.FunctionExecutionResultMessage():
            return protocol.FunctionExecutionResultMessage(
                content=[
                    result.model_copy(update={"content": result.content[:_SHORTENED]})
                    for result in message.content
                ]
            )
        case protocol.AssistantMessage():
            content = message.content
            if isinstance(content, str):
                content = content[:_SHORTENED]
            else:
                content = [
                    call
                    if len(call.arguments) <= _SHORTENED
                    else protocol.FunctionCall(call.id, _NO_ARGUMENTS, call.name)
                    for call in content
                ]
            thought = message.thought and message.thought[:_SHORTENED]
            return protocol.AssistantMessage(
                content=content, thought=thought, source=message.source
            )
    return message


def _drop_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}


def render(output: BaseModel, language: Language) -> str:
    """Return a tool's result as the text that the model reads."""
    match output:
        case SearchMemoriesOutput():
            return _render_search(output, language)
        case GetMemoryDetailOutput():
            return _render_detail(output, language)
    return to_json(_drop_empty(output.model_dump(mode="json")))


def _render_search(output: SearchMemoriesOutput, language: Language) -> str:
    if not output.success:
        return to_json(
            {"success": False, "total_found": output.total_found, "results": []}
            | _drop_empty({"error": output.error, "message": output.message})
        )
    for size, count in _SEARCH_SIZES:
        results = [_result_fields(item.model_dump(), size) for item in output.results[:count]]
        fields = {
            "total_found": output.total_found,
            "returned": len(results),
            "searched": output.searched,
            "results": results,
        }
        note = say(language, "previews_cut", size=size) if size < _FULL_PREVIEW else None
        optional = {
            "withheld": output.withheld or None,
            "below_threshold": output.below_threshold or None,
            "message": (output.message or "")[:_MESSAGE_CHARACTERS],
            "truncated": note,
        }
        text = to_json(fields | _drop_empty(optional))
        if len(text) <= SEARCH_CHARACTERS:
            break
    return text


def _result_fields(item: dict[str, Any], size: int) -> dict[str, Any]:
    item["why"] = item["session_id"] = item["stated_by"] = None
    item["below_threshold"] = item["below_threshold"] or None
    if item["kind"] == "message":  # the type says the same, and a message has no summary
        item["kind"] = None
    if item["speaker"]:
        item["role"] = item["role"] if item["role"] != "other" else None
    if item["passage"]:  # the matching part is more useful than the beginning
        item["content_preview"] = item.pop("passage")
    if item["summary"] and item["content_preview"].startswith(item["summary"]):
        item["summary"] = ""
    item["keywords"] = item["keywords"][:_KEYWORDS_PER_RESULT] if size >= 80 else []
    for name in ("content_preview", "summary", "speaker"):
        if len(item[name] or "") > size + 3:
            item[name] = truncate_text(item[name], size) if size else ""
    return _drop_empty(item)


def _render_detail(output: GetMemoryDetailOutput, language: Language) -> str:
    fields = _drop_empty(output.model_dump(mode="json"))
    content, start = output.content or "", output.start
    if len(content) > DETAIL_CHARACTERS:
        part = content[start : start + DETAIL_CHARACTERS]
        fields["content"] = part
        fields["truncated"] = say(
            language, "content_cut", start=start, end=start + len(part), total=len(content)
        )
    fields.pop("start", None)
    if len(to_json(fields.get("metadata"))) > 500:  # large metadata is for programs
        del fields["metadata"]
    return to_json(fields)


def write_briefing(state: RecallState) -> str:
    """Return the first message of an iteration: time, window, conversation, earlier results.

    The message that the recall is about is marked; if it is older than the window, it comes first.
    """
    now = state.now.astimezone(state.zone)
    head = {
        "now": state.format_local(state.now),
        "weekday": _WEEKDAYS[state.language][now.weekday()],
        "time_zone": state.zone.key,
        "iteration": state.window.iteration,
        "max_iterations": state.window.max_iterations,
        "window": state.window.shown,
        "older_messages": state.window.has_older,
    }
    size = state.characters_per_message
    lines = [to_json(head), state.say("conversation")]
    request, numbered = state.conversation.request, list(enumerate(state.shown, 1))
    if all(message is not request for message in state.shown):
        numbered.insert(0, (0, request))
    for number, message in numbered:
        note = state.say("message_cut", total=len(message.text))
        fields = {
            "n": number,
            "asked": True if message is request else None,
            "role": message.role.value,
            "speaker": message.speaker,
            "time": message.ts and state.format_local(message.ts),
            "text": truncate_text(message.text, size, note),
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        lines.append(to_json(fields))
    return "\n".join([*lines, *_earlier_lines(state)])


def _earlier_lines(state: RecallState) -> list[str]:
    """Return what earlier iterations have found and searched for."""
    hits = sorted(state.hits.values(), key=lambda hit: (-hit.score, hit.key))[:_HITS_IN_BRIEFING]
    results = [
        {
            "memory_key": hit.key,
            "content_preview": (hit.summary or hit.content)[:SHORTEST_MESSAGE],
            "relevance_score": round(hit.score, 2),
            "created_at": state.format_local(hit.ts),
        }
        for hit in hits
    ]
    searches = [
        {**search.arguments, "total_found": search.total_found} for search in state.searches
    ]
    lines = [state.say("found_earlier"), *map(to_json, results)] if results else []
    return lines + ([state.say("tried_earlier"), *map(to_json, searches)] if searches else [])


def write_hint(language: Language, budget: Budget, tools: list[str], *, last: Limit | None) -> str:
    """Return the message before a turn: what the budget has left, and which tools can be used.

    It contains no time, because a replayed run must send the same text.
    """
    if last is not None:
        return say(language, "last_call", limit=say_codes(language, last))
    return say(
        language,
        "turn_hint",
        model_calls=budget.limits.model_calls - budget.usage.model_calls,
        tool_calls=budget.limits.tool_calls - budget.usage.tool_calls,
        tools=", ".join(tools),
    )
