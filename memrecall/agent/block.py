"""What a parent's model is given of a recall: one fenced block of data, within a size."""

from autogen_core.models import UserMessage

from memrecall.agent.loop import SOURCE
from memrecall.agent.phrases import say
from memrecall.agent.rendering import to_json
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.model.prompts import Language
from memrecall.types import format_time

OPEN, CLOSE = "<recalled_memories>", "</recalled_memories>"
BLOCK_CHARACTERS = 4_000
_SHORTEST = 250  # a memory's line, its key and time included
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
        share = min(max(room // (count - number), _SHORTEST), room) - 1
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
    flat = " ".join(text.split()).translate(_ESCAPED)
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


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
