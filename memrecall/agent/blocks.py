"""What a parent agent or its model reads of a recall: a block of memories, or the handoff."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from memrecall.agent.conversation import (
    RecallWhen,
    check_when,
    is_framework_text,
    needs_recall,
)
from memrecall.agent.phrases import say, to_json
from memrecall.agent.result import (
    Certainty,
    RecalledMemory,
    RecallHandoff,
    RecallResult,
    joint_probability,
)
from memrecall.agent.tools.models import (
    HandoffInput,
)
from memrecall.agent.trace import Observer
from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    MemrecallError,
    ScriptExhausted,
    describe_for_log,
)
from memrecall.messages import (
    is_from_user,
    name_sources,
    parse_messages,
    strip_markers,
)
from memrecall.model import protocol
from memrecall.model.structured import SOURCE
from memrecall.search.ranking.lexical import index_tokens
from memrecall.search.results import describe_origin
from memrecall.text.language import STOP_WORDS, language_of
from memrecall.text.snippets import find_center
from memrecall.text_length import single_line, truncate_around, truncate_text
from memrecall.types import Language, format_time

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

if TYPE_CHECKING:  # both use this module
    from memrecall.agent.driver import Recaller
    from memrecall.agent.state import RecallState

_log = logging.getLogger(__name__)


class BlockRecaller:
    """Recalls for the last user message of a context and writes the block for its model."""

    def __init__(
        self,
        recaller: Recaller,
        user_sources: Iterable[object],
        characters: int = BLOCK_CHARACTERS,
        place: BlockPlace = "before",
        when: RecallWhen = "auto",
    ) -> None:
        check_when(when)
        self.recaller = recaller
        self.user_sources = name_sources(user_sources)
        self._characters = characters
        self._place = place
        self._when = when

    def last_request(self, messages: Sequence[protocol.LLMMessage]) -> int | None:
        """Return the index of the user's last message."""
        by_user = (is_from_user(message, self.user_sources) for message in messages)
        return max((index for index, is_user in enumerate(by_user) if is_user), default=None)

    async def recall_block(
        self,
        messages: Sequence[object],
        token: protocol.CancellationToken | None = None,
        observer: Observer | None = None,
    ) -> tuple[str, RecallResult | None]:
        """Return the block and the result for the last message; no block if it needs no recall.

        A failed recall becomes a block that says so, because it must not fail the parent.
        """
        try:
            (request,) = parse_messages(messages[-1:])
        except InvalidArgument:  # a message without text
            return "", None
        conversation = parse_messages(
            [each for each in messages if not is_block_message(each)],
            user_sources=self.user_sources,
        )
        text = strip_markers(request.text)
        if is_framework_text(text) or not needs_recall(text, self._when):
            return "", None
        try:
            result = await self.recaller.recall(
                conversation, observer=observer, cancellation_token=token
            )
        except (CassetteMismatch, ScriptExhausted):
            raise  # an error of whoever records or scripts the run
        except MemrecallError as error:
            _log.warning("no recall: %s", describe_for_log(error))
            return write_failure(error.message, language_of(text)), None
        return write_block(result, self._characters, place=self._place), result


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
    lines: list[str] = []
    count = len(result.memories)
    free -= len(say(language, "block_cut", count=count)) + 1
    for number, memory in enumerate(result.memories):
        # Long contents share the free characters.
        share = min(max(free // (count - number), _MIN_MEMORY_LINE), free) - 1
        words = result.words_about(memory.memory_key)
        line = json_line(_memory_fields(memory, language), "content", share, words)
        if len(line) > share:
            lines.append(say(language, "block_cut", count=count - number))
            break
        lines.append(line)
        free -= len(line) + 1
    return wrap_block([opening, *before, *lines, *after])


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
        # The others are shown too: one of them may say what has changed since.
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


def write_handoff_message(state: RecallState, handoff: HandoffInput) -> str:
    """Return the handoff as text with the sections that a parent expects."""
    hits = [state.hits[key] for key in handoff.relevant_memory_keys if key in state.hits]
    claims = {hit.key: hit.conflicts_with for hit in hits if hit.conflicts_with}
    dropped, unlisted = state.dropped_keys, state.dropped_unlisted
    notes = _notes(state.language, dropped, unlisted, state.withheld, claims)
    return _write_sections(state.language, handoff, handoff.relevant_memory_keys, notes)


def write_parent_message(result: RecallResult, characters: int) -> str:
    """Return the handoff and its evidence in one size, for an agent that sees nothing else.

    Each section has a share of the size; the evidence gets what the sections leave.
    """
    language, handoff, share = result.language, result.handoff, characters // 16
    short = handoff.model_copy(
        update={
            "search_summary": truncate_text(handoff.search_summary, 4 * share),
            "reasoning": truncate_text(handoff.reasoning or handoff.reason, share),
            "follow_up_question": truncate_text(handoff.follow_up_question or "", share),
        }
    )
    keys = fit_keys(language, handoff.relevant_memory_keys, share)
    dropped = [truncate_text(", ".join(result.keys_dropped), share)] if result.keys_dropped else []
    claims = {each.memory_key: each.conflicts_with for each in result.memories if each.claimed_by}
    notes = _notes(language, dropped, result.keys_dropped_unlisted, result.withheld, claims)
    text = _write_sections(language, short, keys, notes)
    block = ""
    if result.memories:
        block = "\n\n" + write_evidence(result, characters - len(text) - 2, place="apart")
    has_room = len(text) + len(block) <= characters
    return text + block if has_room else truncate_text(text, characters - 1)


def _write_sections(
    language: Language,
    handoff: HandoffInput | RecallHandoff,
    keys: Sequence[str],
    notes: Sequence[str],
) -> str:
    summary, reasoning = handoff.search_summary, handoff.reasoning or handoff.reason
    title = say(language, "handoff_title", confidence=handoff.confidence)
    sections = [[title], [say(language, "handoff_summary"), summary]]
    if reasoning != summary:
        sections.append([say(language, "handoff_relevance"), reasoning])
    if keys:
        count = say(language, "handoff_count", count=len(handoff.relevant_memory_keys))
        sections.append([say(language, "handoff_keys"), count, *(f"- {key}" for key in keys)])
    sections += [[note] for note in notes if note not in summary]
    if handoff.needs_more_info and handoff.follow_up_question:
        sections.append([say(language, "handoff_question"), handoff.follow_up_question])
    return "\n\n".join("\n".join(section) for section in sections)


def _notes(
    language: Language,
    dropped: Sequence[str],
    unlisted: int,
    withheld: int,
    claims: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return what a parent must know besides the evidence.

    `claims` are the keys of claims that contradict the user, each with the keys of what they said.
    """
    notes = []
    if dropped:
        keys = ", ".join(dropped)
        if unlisted:
            keys = say(language, "and_more", items=keys, count=unlisted)
        notes.append(say(language, "handoff_dropped", keys=keys))
    if withheld:
        notes.append(say(language, "matches_withheld", count=withheld))
    for key, keys_said in claims.items():
        notes.append(say(language, "handoff_unconfirmed", key=key, keys=", ".join(keys_said)))
    return notes


def fit_keys(language: Language, keys: Sequence[str], characters: int) -> list[str]:
    """Return the first keys that fit, the last of them with the number of the others."""
    sizes = accumulate(len(key) + 3 for key in keys)
    count = max(sum(size <= characters for size in sizes), 1)
    left = len(keys) - count
    if left <= 0:
        return list(keys)
    last = say(language, "and_more", items=keys[count - 1], count=left)
    return [*keys[: count - 1], last]
