"""What the recall agent is told at the start of an iteration and before each turn.

Everything that varies stands here, after the static prompt. The briefing is one message of JSON
lines that a model reads and that the offline rules read back with `read_briefing`.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autogen_core.models import UserMessage
from pydantic import BaseModel

from memrecall.agent.phrases import say
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.agent.state import SEARCHES_IN_A_ROW, RecallState
from memrecall.agent.tools.models import GetMemoryDetailOutput, SearchMemoriesOutput
from memrecall.agent.tools.table import EXPANSION, MEMRECALL_TOOLS
from memrecall.budget import Budget, Limit
from memrecall.messages import ConversationMessage
from memrecall.model.prompts import Language
from memrecall.text_length import single_line, truncate_text
from memrecall.types import format_time

SOURCE = "memrecall"

SEARCH_CHARACTERS = 2_900
DETAIL_CHARACTERS = 4_000
_KEYWORDS_SHOWN = 5
_WHOLE = 200  # characters of a preview that was not cut
_MESSAGE = 500
# How long previews may be, and how many results are shown: tried in turn until the text fits.
_FITS = [(size, 10) for size in (_WHOLE, 150, 110, 80, 50, 30, 15, 0)] + [(0, 5), (0, 1)]


def render(output: BaseModel, language: Language) -> str:
    """A tool's answer as the text that goes into the conversation."""
    match output:
        case SearchMemoriesOutput():
            return _render_search(output, language)
        case GetMemoryDetailOutput():
            return _render_detail(output, language)
    return to_json(_slim(output.model_dump(mode="json")))


def to_json(value: Any) -> str:
    """JSON as a model reads it best: letters as they are, no space for nothing."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _slim(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}


def _render_search(output: SearchMemoriesOutput, language: Language) -> str:
    if not output.success:
        return to_json(
            {"success": False, "total_found": output.total_found, "results": []}
            | _slim({"error": output.error, "message": output.message})
        )
    text = ""
    for size, count in _FITS:
        text = to_json(_search_fields(output, size, count, language))
        if len(text) <= SEARCH_CHARACTERS:
            break
    return text


def _search_fields(
    output: SearchMemoriesOutput, size: int, count: int, language: Language
) -> dict[str, Any]:
    shown = [_search_item(item.model_dump(), size) for item in output.results[:count]]
    cut = say(language, "previews_cut", size=size) if size < _WHOLE else None
    return {
        "total_found": output.total_found,
        "returned": len(shown),
        "searched": output.searched,
        "results": shown,
    } | _slim(
        {
            "told_of": output.told_of,
            "withheld": output.withheld or None,
            "message": (output.message or "")[:_MESSAGE],
            "truncated": cut,
        }
    )


def _search_item(item: dict[str, Any], size: int) -> dict[str, Any]:
    item["why"] = item["session_id"] = None
    if item["kind"] == "message":  # its type says the same, and it has no summary of its own
        item["kind"] = None
    if item["speaker"]:
        item["role"] = item["role"] if item["role"] != "other" else None
    if item["passage"]:  # the part that was asked for says more than the beginning
        item["content_preview"] = item.pop("passage")
    if item["summary"] and item["content_preview"].startswith(item["summary"]):
        item["summary"] = ""
    item["keywords"] = item["keywords"][:_KEYWORDS_SHOWN] if size >= 80 else []
    for name in ("content_preview", "summary", "speaker"):
        if len(item[name] or "") > size + 3:
            item[name] = truncate_text(item[name], size) if size else ""
    return _slim(item)


def _render_detail(output: GetMemoryDetailOutput, language: Language) -> str:
    fields = _slim(output.model_dump(mode="json"))
    content = output.content or ""
    if len(content) > DETAIL_CHARACTERS:
        fields["content"] = truncate_text(content, DETAIL_CHARACTERS)
        fields["truncated"] = say(
            language, "content_cut", shown=DETAIL_CHARACTERS, total=len(content)
        )
    if len(to_json(fields.get("metadata"))) > 500:  # written by others, for others
        del fields["metadata"]
    return to_json(fields)


OPEN, CLOSE = "<recalled_memories>", "</recalled_memories>"
BLOCK_CHARACTERS = 4_000
_SHORTEST_MEMORY = 250  # a memory's line, its key and time included
_LONGEST_PROSE = 300
_LONGEST_NAME = 60
_TIMES = 4
# Neither a fence nor a line's end can be written inside a line: JSON escapes stand for them.
_ESCAPED = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>\x7f\x85\u2028\u2029"}


def write_block(result: RecallResult, characters: int = BLOCK_CHARACTERS) -> str:
    """The recalled memories as JSON lines between fences that no memory can forge."""
    language: Language = "zh" if result.language == "zh" else "en"
    handoff = result.handoff
    ending: list[str] = []
    if handoff.needs_more_info and handoff.follow_up_question:
        question = _prose(handoff.follow_up_question, characters // 4)
        ending = [say(language, "block_question", question=question)]
    if not result.memories:
        nothing = say(language, "block_nothing")
        failed = _prose(handoff.search_summary, characters // 2)
        return fence([nothing if handoff.success else failed, *ending])
    opening = [
        say(language, "block_open", confidence=result.confidence),
        _line({"summary": handoff.search_summary}, "summary", characters // 4),
    ]
    room = characters - len(fence([*opening, *ending]))
    return fence([*opening, *_memory_lines(result.memories, room, language), *ending])


def write_failure(problem: str, language: Language) -> str:
    """A block that says that nothing could be recalled, which is not the same as nothing."""
    return fence([say(language, "block_failed", problem=_prose(problem))])


def as_message(block: str) -> UserMessage:
    """A block as a message of a parent's context."""
    return UserMessage(content=block, source=SOURCE)


def is_block(message: object) -> bool:
    """Whether a message of a context is such a block, which nobody said."""
    return isinstance(message, UserMessage) and message.source == SOURCE


def fence(lines: list[str]) -> str:
    """The lines between the fences."""
    return "\n".join([OPEN, *lines, CLOSE])


def _memory_lines(memories: list[RecalledMemory], room: int, language: Language) -> list[str]:
    """As many memories as fit, the first ones first; long contents are cut to share the room."""
    lines: list[str] = []
    count = len(memories)
    note = say(language, "block_cut", count=count)
    room -= len(note) + 1
    for number, memory in enumerate(memories):
        share = min(max(room // (count - number), _SHORTEST_MEMORY), room) - 1
        line = _line(_fields(memory), "content", share)
        if len(line) > share:
            return [*lines, say(language, "block_cut", count=count - number)]
        lines.append(line)
        room -= len(line) + 1
    return lines


def _line(fields: dict[str, object], name: str, room: int) -> str:
    """One line of JSON; if it has more than `room` characters, one of its fields is cut."""
    text = str(fields[name])
    line = to_json(fields).translate(_ESCAPED)
    while len(line) > room and text:
        # Escapes make a text longer than it looks: cut in proportion, and measure again.
        text = text[: len(text) * max(room, 0) // len(line)]
        line = to_json({**fields, name: f"{text}…"}).translate(_ESCAPED)
    return line


def _prose(text: str, longest: int = _LONGEST_PROSE) -> str:
    """Words of others inside a sentence of ours: one line, no fence, not too long."""
    return truncate_text(single_line(text).translate(_ESCAPED), longest - 1)


def _fields(memory: RecalledMemory) -> dict[str, object]:
    by = memory.speaker or memory.role or memory.memory_type
    times = [time for time in memory.times if time.start][:_TIMES]
    told = {
        "memory_key": memory.memory_key,
        "said_at": format_time(memory.ts),
        "by": by[:_LONGEST_NAME],
        "content": memory.content,
        "times": {time.words: time.start and format_time(time.start)[:10] for time in times},
        "valid_until": memory.valid_to and format_time(memory.valid_to),
    }
    return {name: value for name, value in told.items() if value or name == "content"}


WINDOW_CHARACTERS = 12_000
_SHORTEST = 120
_LONGEST = 2_000
_FOUND_SHOWN = 8
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def write_briefing(desk: RecallState, window: list[ConversationMessage]) -> str:
    """The first message of an iteration: time, window, conversation, what was found before."""
    now = desk.now.astimezone(desk.zone)
    head = {
        "now": desk.local(desk.now),
        "weekday": _WEEKDAYS[now.weekday()],
        "time_zone": desk.zone.key,
        "iteration": desk.window.iteration,
        "max_iterations": desk.window.max_iterations,
        "window": len(window),
        "older_messages": desk.window.older_exist,
    }
    lines = [to_json(head), say(desk.language, "conversation")]
    lines += [
        to_json(_message_fields(desk, said, at, len(window))) for at, said in enumerate(window, 1)
    ]
    lines += _found_lines(desk)
    return "\n".join(lines)


def _message_fields(
    desk: RecallState, said: ConversationMessage, number: int, count: int
) -> dict[str, Any]:
    room = min(max(WINDOW_CHARACTERS // count, _SHORTEST), _LONGEST)
    text = said.text
    if len(text) > room:
        text = text[:room] + say(desk.language, "message_cut", total=len(said.text))
    fields = {
        "n": number,
        "role": said.role.value,
        "speaker": said.speaker,
        "time": said.ts and desk.local(said.ts),
        "text": text,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _found_lines(desk: RecallState) -> list[str]:
    if desk.window.iteration == 1:
        return []
    best = sorted(desk.notes.hits.values(), key=lambda hit: (-hit.score, hit.key))[:_FOUND_SHOWN]
    lines = [say(desk.language, "found_earlier")] if best else []
    lines += [
        to_json(
            {
                "memory_key": hit.key,
                "content_preview": (hit.summary or hit.content)[:_SHORTEST],
                "relevance_score": round(hit.score, 3),
                "created_at": desk.local(hit.ts),
            }
        )
        for hit in best
    ]
    tried = desk.notes.searches
    lines += [say(desk.language, "tried_earlier")] if tried else []
    lines += [to_json({**note.arguments, "total_found": note.total_found}) for note in tried]
    return lines


def write_hint(desk: RecallState, budget: Budget, *, last: Limit | None) -> str:
    """The last message before a turn, not kept: what is left, and what is possible now.

    Nothing of the clock is in it: a replayed run must send the same words.
    """
    if last is not None:
        return say(desk.language, "last_call", limit=last)
    return say(
        desk.language,
        "turn_hint",
        model_calls=budget.limits.model_calls - budget.usage.model_calls,
        tool_calls=budget.limits.tool_calls - budget.usage.tool_calls,
        tools=", ".join(possible_tools(desk)),
    )


def read_last_call(hint: str) -> Limit | None:
    """The limit that a hint names as the reason why nothing but a handoff is left."""
    for limit in Limit:
        if hint in (say("en", "last_call", limit=limit), say("zh", "last_call", limit=limit)):
            return limit
    return None


def possible_tools(desk: RecallState) -> list[str]:
    """The tools that would not be refused now."""
    closed = set() if desk.window.can_grow else {EXPANSION}
    if desk.notes.in_a_row >= SEARCHES_IN_A_ROW:
        closed.add("search_memories")
    return [name for name in MEMRECALL_TOOLS if name not in closed]


@dataclass(frozen=True, slots=True)
class Briefing:
    """A briefing as the offline rules read it."""

    now: datetime
    time_zone: str
    iteration: int
    max_iterations: int
    window: int
    older_messages: bool
    messages: tuple[dict[str, Any], ...]  # n, role, perhaps speaker and time, text
    found: tuple[dict[str, Any], ...]  # memory_key, content_preview, relevance_score, created_at
    tried: tuple[dict[str, Any], ...]  # the arguments of earlier searches, and total_found


def read_briefing(text: str) -> Briefing:
    """The inverse of `write_briefing`."""
    head, *rest = [json.loads(line) for line in text.split("\n") if line.startswith("{")]
    return Briefing(
        now=datetime.fromisoformat(head["now"]),
        time_zone=head["time_zone"],
        iteration=head["iteration"],
        max_iterations=head["max_iterations"],
        window=head["window"],
        older_messages=head["older_messages"],
        messages=tuple(line for line in rest if "n" in line),
        found=tuple(line for line in rest if "memory_key" in line),
        tried=tuple(line for line in rest if "query" in line),
    )
