"""Texts that models read: tool results, briefings and hints of the loop, blocks for parents.

The varying parts of a prompt are written here; they follow the static prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel

from memrecall.agent.phrases import say, say_codes
from memrecall.agent.result import Certainty, RecalledMemory, RecallResult, joint_probability
from memrecall.agent.state import SHORTEST_MESSAGE, RecallState
from memrecall.agent.tools.models import GetMemoryDetailOutput, SearchMemoriesOutput
from memrecall.budget import Budget, Limit
from memrecall.library.spaces import describe_origin
from memrecall.messages import ConversationMessage
from memrecall.model import protocol
from memrecall.model.structured import SOURCE
from memrecall.search.ranking.lexical import index_tokens
from memrecall.text.language import STOP_WORDS
from memrecall.text.snippets import find_center
from memrecall.text_length import single_line, truncate_around, truncate_text
from memrecall.types import Language, format_time

SEARCH_CHARACTERS = 2_900
DETAIL_CHARACTERS = 4_000
_KEYWORDS_PER_RESULT = 5
_FULL_PREVIEW = 200
_MESSAGE_CHARACTERS = 500
# Preview lengths and result counts, tried in order until the text fits.
_SEARCH_SIZES = [(size, 10) for size in (_FULL_PREVIEW, 150, 110, 80, 50, 30, 15, 0)]
_SEARCH_SIZES += [(0, 5), (0, 1)]

BLOCK_START, BLOCK_END = "<recalled_memories>", "</recalled_memories>"
BLOCK_CHARACTERS = 4_000
BlockPlace = Literal["before", "after", "apart"]  # of a block, seen from the user's message
_MIN_MEMORY_LINE = 250  # including its key and time
_MAX_PROSE = 300
_MAX_NAME = 60
_MAX_TIMES = 4
_LONG_REQUEST, _SAME = 12, 0.8  # terms, and the share of them that nearly equal texts have
_HAS_DIGIT = re.compile(r"\d").search
# A line can contain neither a block marker nor a line break: both are escaped as in JSON.
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>\x7f\x85\u2028\u2029"}

_HITS_IN_BRIEFING = 8
_WEEKDAYS: dict[Language, tuple[str, ...]] = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "zh": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
}


def to_json(value: Any) -> str:
    """Return compact JSON with readable letters, as models read it best."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
        text = to_json(_search_fields(output, size, count, language))
        if len(text) <= SEARCH_CHARACTERS:
            break
    return text


def _search_fields(
    output: SearchMemoriesOutput, size: int, count: int, language: Language
) -> dict[str, Any]:
    results = [_result_fields(item.model_dump(), size) for item in output.results[:count]]
    note = say(language, "previews_cut", size=size) if size < _FULL_PREVIEW else None
    return {
        "total_found": output.total_found,
        "returned": len(results),
        "searched": output.searched,
        "results": results,
    } | _drop_empty(
        {
            "withheld": output.withheld or None,
            "below_threshold": output.below_threshold or None,
            "message": (output.message or "")[:_MESSAGE_CHARACTERS],
            "truncated": note,
        }
    )


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


def write_block(
    result: RecallResult, characters: int = BLOCK_CHARACTERS, *, place: BlockPlace = "before"
) -> str:
    """Return the recalled memories as JSON lines between markers that no memory can forge.

    The block says which message it is for: the one after it, before it (`place="after"`), or, in
    the result of a tool or of another agent, the request (`place="apart"`).
    """
    language, handoff = result.language, result.handoff
    ending: list[str] = []
    if result.withheld:
        ending.append(say(language, "matches_withheld", count=result.withheld))
    if result.other_projects:
        names = _flatten(", ".join(result.other_projects))
        ending.append(say(language, "other_projects", names=names))
    if handoff.needs_more_info and handoff.follow_up_question:
        question = _flatten(handoff.follow_up_question, characters // 4)
        ending.append(say(language, "block_question", question=question))
    if not result.memories:
        nothing = [] if result.withheld else [say(language, "block_nothing")]
        failure = _flatten(handoff.search_summary, characters // 2)
        share = characters // 8
        closest = [
            json_line(
                {"closest": memory.content, **memory.describe_doubts(language)}, "closest", share
            )
            for memory in result.closest
        ]
        return wrap_block([*(nothing if handoff.success else [failure]), *closest, *ending])
    summary = json_line({"summary": handoff.search_summary}, "summary", characters // 4)
    return write_evidence(result, characters, place=place, before=[summary], after=ending)


def write_evidence(
    result: RecallResult,
    characters: int,
    *,
    place: BlockPlace,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> str:
    """Return a block of the recalled memories, with lines before and after them."""
    language = result.language
    request = say(language, f"block_{place}")
    opening = say(language, "block_open", request=request, confidence=result.confidence)
    free = characters - len(wrap_block([opening, *before, *after]))
    return wrap_block([opening, *before, *_memory_lines(result, free, language), *after])


def write_relevant_block(
    result: RecallResult,
    characters: int,
    min_confidence: float = 0.0,
    *,
    only_sure: bool,
    request: str = "",
) -> str:
    """Return the block of a result that is worth showing unasked; "" if it is not.

    Where a client puts it, before or after the message, is not known. What only repeats the
    `request`, which was made before, is no evidence for it.
    """
    asked = frozenset(index_tokens(request))
    new = [memory for memory in result.memories if not _is_repetition(memory.content, asked)]
    relevant = result.model_copy(update={"memories": new})
    if only_sure:
        # The others are shown beside what is sure: one of them may say what has changed since.
        sure = relevant.sure_memories()
        if not sure:
            return ""
        if result.certainty is not Certainty.SURE:
            confidence = joint_probability(sure)
            relevant = relevant.model_copy(update={"confidence": confidence})
    if not new or relevant.confidence < min_confidence:
        return ""
    if len(new) == len(result.memories):
        return write_block(relevant, characters, place="apart")
    # Without the summary, which may quote what is left out.
    return write_evidence(relevant, characters, place="apart")


def _is_repetition(content: str, asked: frozenset[str]) -> bool:
    """Return whether a text says nothing that was not asked, or hardly anything if it is long."""
    words = frozenset(index_tokens(content)) if asked else frozenset()
    new = words - asked - STOP_WORDS
    is_similar = len(words) >= _LONG_REQUEST and len(words & asked) >= _SAME * len(words | asked)
    return bool(words) and not (new if not is_similar else any(map(_HAS_DIGIT, new)))


def write_failure(problem: str, language: Language) -> str:
    """Return a block that reports a failed recall, which does not mean that nothing is stored."""
    return wrap_block([say(language, "block_failed", problem=_flatten(problem))])


def wrap_block(lines: list[str]) -> str:
    """Return lines between the markers of a block."""
    return "\n".join([BLOCK_START, *lines, BLOCK_END])


def block_message(block: str) -> protocol.UserMessage:
    """Return a block as a message of a parent's context."""
    return protocol.UserMessage(content=block, source=SOURCE)


def is_block_message(message: object) -> bool:
    """Return True for a message of `block_message`, which no person wrote."""
    return isinstance(message, protocol.UserMessage) and message.source == SOURCE


def _memory_lines(result: RecallResult, free: int, language: Language) -> list[str]:
    """Return a line for each memory that fits; long contents share the free characters."""
    lines: list[str] = []
    count = len(result.memories)
    free -= len(say(language, "block_cut", count=count)) + 1
    for number, memory in enumerate(result.memories):
        share = min(max(free // (count - number), _MIN_MEMORY_LINE), free) - 1
        words = result.words_about(memory.memory_key)
        line = json_line(_memory_fields(memory, language), "content", share, words)
        if len(line) > share:
            return [*lines, say(language, "block_cut", count=count - number)]
        lines.append(line)
        free -= len(line) + 1
    return lines


def json_line(fields: dict[str, object], name: str, size: int, words: Sequence[str] = ()) -> str:
    """Return one line of JSON; if it is too long, one field is cut to the part about the words."""
    text = str(fields[name])
    line = to_json(fields).translate(_ESCAPES)
    length, center = len(text), None
    while len(line) > size and length:
        # Escapes lengthen the text: truncate in proportion, and measure again.
        length = length * max(size, 0) // len(line)
        center = find_center(text, words) if center is None else center
        part = truncate_around(text, length, center)
        line = to_json({**fields, name: part}).translate(_ESCAPES)
    return line


def _flatten(text: str, size: int = _MAX_PROSE) -> str:
    """Return stored text for use inside a sentence: one line, no marker, truncated."""
    return truncate_text(single_line(text).translate(_ESCAPES), size - 1)


def _memory_fields(memory: RecalledMemory, language: Language) -> dict[str, object]:
    times = [time for time in memory.times if time.start][:_MAX_TIMES]
    fields = {
        "memory_key": memory.memory_key,
        "said_at": format_time(memory.ts),
        "by": memory.by[:_MAX_NAME],
        "from": memory.space and describe_origin(memory.space, memory.author, memory.ts),
        **memory.describe_certainty(language),
        "content": memory.content,
        "times": {time.words: time.start and format_time(time.start)[:10] for time in times},
        "valid_until": memory.valid_to and format_time(memory.valid_to),
        **memory.describe_conflict(language),
    }
    return {name: value for name, value in fields.items() if value or name == "content"}


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
        fields = {"n": number} | ({"asked": True} if message is request else {})
        lines.append(to_json(fields | _message_fields(state, message, size)))
    return "\n".join([*lines, *_earlier_lines(state)])


def _message_fields(state: RecallState, message: ConversationMessage, size: int) -> dict[str, Any]:
    note = state.say("message_cut", total=len(message.text))
    fields = {
        "role": message.role.value,
        "speaker": message.speaker,
        "time": message.ts and state.format_local(message.ts),
        "text": truncate_text(message.text, size, note),
    }
    return {name: value for name, value in fields.items() if value is not None}


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
