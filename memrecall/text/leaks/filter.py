"""The filter for a model's answer, as a whole or as it is streamed."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from memrecall.text.leaks.automaton import SENTENCE_ENDS, SPACES, AutomatonState, sentence_start
from memrecall.text.leaks.calls import (
    MAX_JSON_LENGTH,
    CallVerdict,
    Filtered,
    HiddenText,
    JsonReader,
    Leak,
    NamePrefixes,
)
from memrecall.text.leaks.catalog import (
    FormatEntry,
    FormatSet,
    LeakMode,
    Reasoning,
    get_formats,
    unique_names,
)
from memrecall.text.leaks.formats import (
    AFTER_SUBJECT,
    MAX_AMBIGUOUS_LENGTH,
    TAG_MENTION,
    FormatKind,
    ReasoningFormat,
    StartPosition,
)
from memrecall.text.leaks.markdown import (
    FENCE,
    INDENT,
    CodeSpan,
    Fence,
    Indentation,
    delimiter_length,
    is_span_mark,
    may_be_indent,
)

MAX_FORMAT_LENGTH = 256  # characters, without blanks, within which a format must be recognised
_JSON_BEGIN = re.compile(r"(?:\[[\sĠĊ]*)?\{[\sĠĊ]*[\"'“”]")
_FENCE_END = re.compile(r"\n[ \t]*```")
_FENCES_OR_SPACE = re.compile(r"[`\s]*")
# After which something new begins, not a name or (after fewer marks) a span that is mentioned.
_MARK = re.compile(rf"""(["'] |[{SENTENCE_ENDS}]["']|[^\W0-9A-Za-z_]|[^\w<\[`"'“‘/@$ ] ?)\Z""")
_SPAN_MARK = re.compile(r"""[^\w=+<\[|`"'“”‘’/\\@#&$ ] ?\Z""")
_IN_TEXT = "\n ,:;(，：；、（*_-"  # after which a sentence goes on, or begins
_IN_WORD = re.compile(r"[A-Za-z0-9_]\Z")  # after which a Latin word may continue


class ScanMode(Enum):
    """What the text is at the current position."""

    PROSE = "prose"
    DELIMITER = "marks"  # a run of backticks or tildes that may open code
    SPAN = "span"  # possible code between backticks
    FENCE = "fence"
    INDENTED = "indented"  # a line of code
    POSSIBLE_REASONING = "doubt"  # reasoning if its answer follows, otherwise prose
    REASONING = "thought"
    AFTER_CALL = "called"  # what follows a call


@dataclass(slots=True, eq=False)
class LeakCandidate:
    """Text from `start` that may turn out to match a format."""

    start: int
    start_position: StartPosition
    _state: AutomatonState[FormatEntry]
    _names: NamePrefixes | None  # of the tools; None where JSON is data
    end: int = field(init=False)  # of the text read so far, and of the match if there is one
    entry: FormatEntry | None = None  # the format that matches
    is_truncated: bool = False  # whether it matches because the text ends
    verdict: CallVerdict = CallVerdict.OPEN
    _json: JsonReader | None = None
    _max_length: int = MAX_FORMAT_LENGTH

    def __post_init__(self) -> None:
        self.end = self.start

    @property
    def is_json(self) -> bool:
        """Whether it is read as JSON."""
        return self._json is not None

    def read(self, text: str, is_final: bool) -> CallVerdict:
        """Return the verdict on the text so far; `is_final` says that nothing will follow."""
        if self.verdict is CallVerdict.OPEN:
            self.verdict = self._read(text, is_final)
        return self.verdict

    def _read(self, text: str, is_final: bool) -> CallVerdict:
        if self._json is not None:
            return self._read_json(self._json, text, is_final)
        state, end, limit = self._state, self.end, self.start + self._max_length
        for char in text[end:limit]:
            state = state[char]
            end += 1
            if state.is_settled:
                break
        self._state, self.end = state, end
        if end == limit and not state.is_settled and self._extend(text):
            return self._read(text, is_final)
        if not state.is_settled:
            self.entry = state.truncated
            is_too_long = end == limit
            if not is_too_long and not is_final:
                return CallVerdict.OPEN
            if self.entry is None or (is_too_long and not self.entry.row.may_exceed_limit):
                return CallVerdict.NO
            self.is_truncated = True
            return CallVerdict.YES
        self.entry = state.matched
        if state.matched is None or state.matched.row.kind is FormatKind.STRUCK:
            return CallVerdict.NO
        if state.matched.row.kind is not FormatKind.JSON:
            return CallVerdict.YES
        return self._begin_json(text, is_final)

    @property
    def marker_end(self) -> int:
        """The end of the match, without a character after it that was only looked at."""
        entry = self.entry
        is_stray_end = entry is not None and entry.is_stray_end and not self.is_truncated
        lookahead = entry.reasoning.stray_end if entry and entry.reasoning else ""
        is_preamble = entry is not None and entry.answer and entry.row.pattern.endswith("]")
        return self.end - bool(is_preamble or (is_stray_end and lookahead))

    def mentions_end(self, buffer: "TextBuffer", before: str) -> bool:
        """Return True if it is an end of reasoning that a sentence mentions.

        `plan.</think>Hello`, `plan</think>Hello` and a line end after it end reasoning;
        `the </think> tag` and, in lenient mode, `用</think>结束` do not.
        """
        if self.start_position not in (StartPosition.WORD, StartPosition.MARK):
            return False
        after = buffer.text[self.end - 1]
        if self.is_truncated or after == "\n":
            return self.is_truncated
        return not after.isupper() if before == " " else after.isalpha() > buffer.hides_marks

    def _extend(self, text: str) -> bool:
        """Return True if more characters may be read, because blanks do not count."""
        blanks = sum(map(text[self.start : self.end].count, SPACES))
        longest = min(MAX_FORMAT_LENGTH + blanks, MAX_JSON_LENGTH)
        if longest <= self._max_length:
            return False
        self._max_length = longest
        return True

    def move(self, by: int) -> None:
        """Adjust the positions to a text that lost `by` characters at its start."""
        self.start -= by
        self.end -= by

    def _begin_json(self, text: str, is_final: bool) -> CallVerdict:
        begin = _JSON_BEGIN.search(text, self.start, self.end)
        if self._names is None or begin is None:
            return CallVerdict.NO
        self.end = begin.start()
        self._json = JsonReader(self._names, whole=self.start_position is StartPosition.START)
        return self._read_json(self._json, text, is_final)

    def _read_json(self, reader: JsonReader, text: str, is_final: bool) -> CallVerdict:
        limit = self.start + MAX_JSON_LENGTH
        self.end = reader.read(text, self.end, min(len(text), limit))
        # A fence that begins the answer is a call only if it is the whole answer.
        begins_answer = self.entry and self.entry.row.start_position is StartPosition.START
        if reader.verdict is CallVerdict.YES and begins_answer and text[self.start] == "`":
            return self._read_fence(text, is_final)
        if reader.verdict is not CallVerdict.OPEN:
            return reader.verdict
        if is_final and reader.is_truncated_call:
            return CallVerdict.YES
        return CallVerdict.NO if is_final or self.end >= limit else CallVerdict.OPEN

    def _read_fence(self, text: str, is_final: bool) -> CallVerdict:
        """Return YES if only fences follow: JSON with prose after it is an example."""
        limit = self.start + MAX_JSON_LENGTH
        while end := _FENCE_END.search(text, self.end, limit):
            behind = _FENCES_OR_SPACE.match(text, end.end(), limit)
            position = behind.end() if behind else end.end()
            if position == len(text) or position == limit:
                break
            if "`" not in text[end.end() : position].lstrip("`"):
                return CallVerdict.NO
            self.end = position
        return CallVerdict.YES if is_final or len(text) >= limit else CallVerdict.OPEN


@dataclass(slots=True, eq=False)
class TextBuffer:
    """The end of the text so far; everything before it is processed."""

    text: str = ""
    base: int = 0  # the position of the buffer in the whole text
    position: int = 0  # the end of the text that is processed
    visible_end: int = 0  # the end of the text that is shown or hidden
    is_final: bool = False  # whether nothing will follow
    hides_marks: bool = False  # whether the backticks before a call are hidden with it
    _before: str = ""  # the last characters before the buffer
    _pieces: list[str] = field(default_factory=list)
    _hidden_end: int = 0  # of the last hidden text, in the whole text
    _tail: str = ""  # the last characters that were shown before it

    def show(self, to: int) -> None:
        """Make the text visible up to a position."""
        if to > self.visible_end:
            self._pieces.append(self.text[self.visible_end : to])
            self.visible_end = to

    def show_before_call(self, to: int) -> None:
        """Make the text visible up to a possible call, or where one may begin."""
        marks = "`" if self.hides_marks else ""
        self.show(self.visible_end + len(self.text[self.visible_end : to].rstrip(marks)))

    def skip(self, to: int) -> str:
        """Hide the text up to a position, and return what was not shown of it."""
        hidden = self.text[self.visible_end : to]
        if self.base + self.visible_end > self._hidden_end:
            self._tail = self.look_back(self.visible_end)
        self.position = self.visible_end = max(self.visible_end, to)
        self._hidden_end = self.base + self.visible_end
        return hidden

    @property
    def held(self) -> str:
        """The text that is neither shown nor hidden yet."""
        return self.text[self.visible_end :]

    def start_position_at(self, position: int, *, in_span: bool) -> StartPosition:
        """Return what kind of position this is inside a line."""
        before = self.look_back(position)
        if _IN_WORD.search(before):
            return StartPosition.ANYWHERE
        end = before.removesuffix(" ")[-1:]
        if end and end in SENTENCE_ENDS:
            return StartPosition.SENTENCE
        is_mark = (_SPAN_MARK if in_span else _MARK).search(before)
        return StartPosition.MARK if is_mark else StartPosition.WORD

    def look_back(self, position: int) -> str:
        """Return up to two characters before a position."""
        if position > 1:
            return self.text[position - 2 : position]
        return (self._before + self.text[:position])[-2:]

    def retract(self) -> None:
        """Drop what became visible since the last call."""
        self._pieces.clear()
        self._tail = ""

    def begin_channel(self, *, is_first: bool) -> None:
        """Separate a channel from what was shown before it by a blank line."""
        tail = self._tail
        if tail and not (is_first and tail[-1].isspace()):
            self._pieces.append("\n\n"[len(tail) - len(tail.rstrip("\n")) :])

    def take_pieces(self) -> str:
        """Return what became visible since the last call."""
        pieces = "".join(self._pieces)
        self._pieces.clear()
        return pieces

    def trim(self) -> int:
        """Drop what is processed and shown, and return its length."""
        cut = min(self.position, self.visible_end)
        self._before = self.look_back(cut)
        self.text = self.text[cut:]
        self.base += cut
        self.position -= cut
        self.visible_end -= cut
        return cut


@dataclass(slots=True)
class MarkerContext:
    """What the text so far says about the markers of reasoning and of ends in it."""

    accepts_ambiguous: bool = True  # whether ambiguous text may be reasoning
    mentions_tags: bool = False  # whether the text mentioned reasoning tags
    has_struck: bool = False  # whether the text has `<s>`, which `</s>` closes

    def is_ordinary(self, candidate: LeakCandidate, buffer: TextBuffer) -> bool:
        """Return True if a match is ordinary prose here."""
        entry, before = candidate.entry, buffer.look_back(candidate.start)[-1:]
        if entry is None:
            return False
        row, is_mark = entry.row, entry.row.start_position is StartPosition.MARK
        if row.kind is FormatKind.CALL:  # directly after a word only one that ends its line
            ends_line = candidate.is_truncated or buffer.text[candidate.end - 1] in "\n("
            return is_mark and before.isalpha() and not (ends_line and row.family == "pythonic")
        if row.kind is FormatKind.END:  # words after it end a turn only if a sentence ends before
            closes = self.has_struck and row.family == "struck"
            return closes or (is_mark and (before in _IN_TEXT or before.isalnum()))
        if entry.reasoning is None or row.kind is FormatKind.REASONING:
            return bool(entry.reasoning and entry.reasoning.is_ambiguous > self.accepts_ambiguous)
        return self.mentions_tags or candidate.mentions_end(buffer, before)


class LeakFilter:
    """A filter that hides tool calls written as text, in whatever pieces the text arrives.

    Use one filter per answer. Everything from the first call on is hidden, because it relies on a
    call that was never made; only a channel addressed to the reader is shown again. Calls are never
    executed.

    `mode` "lenient" leaves Markdown code alone, and control tokens without the rest of a call;
    "strict" hides such tokens, and in code DeepSeek's and those that a registered tool's name
    follows.

    `reasoning` says what happens to reasoning: "keep" or "strip" it; "open": strip it, and the text
    begins inside reasoning; "auto": strip it, and if it ends without having begun, `has_retracted`
    becomes True, which means that all text returned by earlier calls was reasoning.
    """

    def __init__(
        self,
        tool_names: Iterable[str] = (),
        *,
        reasoning: Reasoning = "keep",
        mode: LeakMode = "lenient",
    ) -> None:
        self._catalog = get_formats(unique_names(tool_names), reasoning, mode)
        self._formats = self._catalog.prose()
        self._buffer = TextBuffer(hides_marks=mode == "strict")
        self._mode = ScanMode.PROSE
        self._at_line_start = True
        self._at_answer_start = True  # nothing of it was read
        self._indentation = Indentation()
        self._delimiter_position = StartPosition.START  # where the delimiter begins
        self._candidate: LeakCandidate | None = None
        self._span: CodeSpan | None = None
        self._fence: Fence | None = None
        self._reasoning: ReasoningFormat | None = None
        self._context = MarkerContext()
        self._pending_call: HiddenText | None = None  # a call in reasoning that may still end
        self._hidden_texts: list[HiddenText] = []
        self._data_end = 0  # JSON before this position is data
        self._code_formats = self._catalog.code  # None if Markdown code is left alone
        self._may_retract = reasoning == "auto"
        self.has_retracted = False
        if reasoning == "open":
            self._mode, self._reasoning = ScanMode.REASONING, self._catalog.initial_reasoning

    @property
    def leaks(self) -> list[Leak]:
        """The calls found so far, in order; a name may become known later."""
        return [leak for hidden in self._hidden_texts for leak in hidden.leaks()]

    @property
    def held(self) -> str:
        """The text that is withheld for now, because it may turn out to be a call."""
        return "" if self._mode in (ScanMode.REASONING, ScanMode.AFTER_CALL) else self._buffer.held

    @property
    def is_in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._mode is ScanMode.REASONING

    def feed(self, chunk: str) -> str:
        """Process the next piece of the text, and return what becomes visible."""
        if self._buffer.is_final:
            raise ValueError("the filter is closed; create a new one for each answer")
        return self._process(chunk)

    def close(self) -> str:
        """End the text, and return the rest of what is visible."""
        if self._buffer.is_final:
            return ""
        self._buffer.is_final = True
        visible = self._process("")
        if self._pending_call is not None:
            self._hidden_texts.append(self._pending_call)
        return visible

    def _process(self, chunk: str) -> str:
        buffer = self._buffer
        buffer.text += chunk
        while self._read_next():
            pass
        trimmed = buffer.trim()
        for place in (self._candidate, self._span):
            if place is not None:
                place.move(trimmed)
        return buffer.take_pieces()

    def _read_next(self) -> bool:
        """Continue in the current mode; return True if there is more to read."""
        match self._mode:
            case ScanMode.PROSE:
                return self._read_prose()
            case ScanMode.DELIMITER:
                return self._read_delimiter()
            case ScanMode.SPAN if self._span is not None:
                return self._read_span(self._span)
            case ScanMode.FENCE if self._fence is not None:
                return self._read_fence(self._fence)
            case ScanMode.INDENTED:
                return self._read_indented()
            case ScanMode.POSSIBLE_REASONING if self._reasoning is not None:
                return self._read_possible_reasoning(self._reasoning)
            case ScanMode.REASONING if self._reasoning is not None:
                return self._read_reasoning(self._reasoning)
        return self._read_after_call(self._hidden_texts[-1])

    def _read_after_call(self, hidden: HiddenText) -> bool:
        candidate = self._hide_up_to(self._catalog.after_call(hidden.row), hidden)
        if candidate is None or candidate.verdict is CallVerdict.OPEN or candidate.entry is None:
            return False
        if not candidate.entry.is_stray_end:
            return self._accept(candidate)
        self._candidate = None
        self._retract()  # what follows stays hidden: arguments may contain the end of reasoning
        hidden.append(self._buffer.skip(candidate.end))
        return True

    def _read_prose(self) -> bool:
        buffer = self._buffer
        candidate = self._candidate or self._find_candidate()
        if self._mode is not ScanMode.PROSE:
            return True
        if candidate is None:
            buffer.show(len(buffer.text))
            return False
        verdict = candidate.read(buffer.text, buffer.is_final)
        self._candidate = candidate if verdict is CallVerdict.OPEN else None
        if verdict is CallVerdict.NO or (
            verdict is CallVerdict.YES and self._context.is_ordinary(candidate, buffer)
        ):
            self._reject(candidate)
            return True
        buffer.show_before_call(candidate.start)
        return self._accept(candidate)

    def _find_candidate(self) -> LeakCandidate | None:
        """Return the next position where a format could begin, or switch to code."""
        buffer = self._buffer
        while True:
            if self._at_line_start:
                candidate = self._begin_line()
                is_prose = self._mode is ScanMode.PROSE
                if candidate is not None or not is_prose or self._at_line_start:
                    return candidate
            stops = self._formats.stop_pattern(self._indentation.lines)
            match = stops.search(buffer.text, buffer.position)
            if match is None:
                buffer.position = len(buffer.text)
                return None
            buffer.position = match.start()
            start = sentence_start(match)
            if start == len(buffer.text):
                return None  # a sentence may begin here
            if start > buffer.position:
                buffer.position = start
                return self._start_candidate(self._formats, start, StartPosition.SENTENCE)
            is_span = self._code_formats is None or is_span_mark(buffer.text, buffer.position)
            if match[0] == "`" and is_span:
                self._mode = ScanMode.DELIMITER
                self._delimiter_position = buffer.start_position_at(buffer.position, in_span=True)
                return None
            if match[0] != "\n":
                start_position = buffer.start_position_at(buffer.position, in_span=match[0] == "`")
                return self._start_candidate(self._formats, buffer.position, start_position)
            if not buffer.is_final and may_be_indent(buffer.text[buffer.position :]):
                return None
            buffer.position += 1
            self._at_line_start = True

    def _begin_line(self) -> LeakCandidate | None:
        """Read the indentation; return the candidate at the first word of the line."""
        buffer = self._buffer
        if (indent := INDENT.match(buffer.text, buffer.position)) and indent[0]:
            self._indentation.read(indent[0])
            buffer.position = indent.end()
        if buffer.position == len(buffer.text):
            return None
        start_position = StartPosition.START if self._at_answer_start else StartPosition.LINE
        self._at_line_start = self._at_answer_start = False
        char = buffer.text[buffer.position]
        if self._indentation.begin_line(char) and start_position is StartPosition.LINE:
            self._mode = ScanMode.INDENTED
        elif self._formats.starts[start_position][char].can_match and not is_span_mark(
            buffer.text, buffer.position
        ):
            return self._start_candidate(self._formats, buffer.position, start_position)
        elif char in "`~":
            self._mode, self._delimiter_position = ScanMode.DELIMITER, start_position
        return None

    def _start_candidate(
        self, formats: FormatSet, position: int, start_position: StartPosition
    ) -> LeakCandidate:
        is_data = self._buffer.base + position < self._data_end
        names = None if is_data else self._catalog.names
        return LeakCandidate(position, start_position, formats.starts[start_position], names)

    def _reject(self, candidate: LeakCandidate) -> None:
        buffer = self._buffer
        if candidate.is_json:
            self._data_end = max(self._data_end, buffer.base + candidate.end)
        if TAG_MENTION.match(buffer.text, candidate.start):
            self._context.mentions_tags = True
        if candidate.entry is not None and candidate.entry.row.kind is FormatKind.STRUCK:
            self._context.has_struck = True
        mark = buffer.text[candidate.start]
        if mark == "`" or (mark == "~" and candidate.start_position >= StartPosition.LINE):
            self._mode, self._delimiter_position = ScanMode.DELIMITER, candidate.start_position
        else:
            buffer.position = candidate.start + 1

    def _accept(self, candidate: LeakCandidate) -> bool:
        """Apply the format that matches; return False if the match is incomplete."""
        entry, buffer = candidate.entry, self._buffer
        if candidate.verdict is not CallVerdict.YES or entry is None:
            return False
        self._candidate = None
        if entry.row.kind in (FormatKind.CALL, FormatKind.JSON, FormatKind.END):
            self._span = self._fence = None
            self._hidden_texts.append(self._new_hidden_text(candidate, entry))
            self._mode = ScanMode.AFTER_CALL
            return True
        if entry.row.kind is FormatKind.REASONING and entry.reasoning is not None:
            self._reasoning = entry.reasoning
            if entry.reasoning.is_ambiguous:
                self._mode = ScanMode.POSSIBLE_REASONING
                buffer.position = candidate.end
            else:
                self._mode = ScanMode.REASONING
                buffer.skip(candidate.end - 1)  # its last character may begin the end marker
            return True
        buffer.skip(candidate.marker_end)
        if entry.is_stray_end:
            self._retract()
        self._mode = ScanMode.PROSE
        self._at_line_start = self._at_answer_start = True
        self._indentation = Indentation()
        if entry.answer is not None:
            buffer.begin_channel(is_first=self._formats is self._catalog.prose())
            self._formats = self._catalog.prose(entry.answer)
        return True

    def _retract(self) -> None:
        """Take back all visible text in `auto`, once: it was reasoning without a beginning."""
        if self._may_retract:
            self._may_retract = False
            self.has_retracted = True
            self._buffer.retract()

    def _read_delimiter(self) -> bool:
        buffer = self._buffer
        start, mark = buffer.position, buffer.text[buffer.position]
        end = start + delimiter_length(buffer.text, start)
        if end == len(buffer.text) and not buffer.is_final:
            buffer.show_before_call(end)
            return False
        buffer.position = end
        may_be_fence = self._delimiter_position >= StartPosition.LINE and end - start >= FENCE
        if mark == "`":
            self._mode, self._candidate = ScanMode.SPAN, None
            self._span = CodeSpan(end, end - start, may_be_fence, searched_end=end)
        elif may_be_fence:
            self._mode, self._fence = ScanMode.FENCE, Fence(mark, end - start)
        else:
            self._mode = ScanMode.PROSE
        return True

    def _read_span(self, span: CodeSpan) -> bool:
        buffer = self._buffer
        if span.code_end is None:
            end = span.decide(buffer.text, buffer.is_final)
            if end is None:
                candidate = self._find_format(self._formats.in_span, span.scanned_end)
                span.scanned_end = candidate.start if candidate else len(buffer.text)
                buffer.show_before_call(span.scanned_end)
                return False
            self._candidate = None
            if isinstance(end, Fence) or end < 0:
                self._span, self._fence = None, end if isinstance(end, Fence) else None
                self._mode = ScanMode.FENCE if self._fence else ScanMode.PROSE
                return True
            span.code_end = end
        if not self._show_code(span.start, span.code_end):
            return self._mode is ScanMode.AFTER_CALL
        self._span, self._mode, buffer.position = None, ScanMode.PROSE, span.code_end
        return True

    def _read_fence(self, fence: Fence) -> bool:
        buffer, start = self._buffer, self._buffer.position
        if not fence.is_closed:
            buffer.position = fence.read(buffer.text, start, buffer.is_final)
        if not self._show_code(start, buffer.position if fence.is_closed else len(buffer.text)):
            return self._mode is ScanMode.AFTER_CALL
        if fence.is_closed:
            self._mode, self._fence = ScanMode.PROSE, None
        return fence.is_closed

    def _read_indented(self) -> bool:
        buffer = self._buffer
        line_end = buffer.text.find("\n", buffer.position) + 1
        end = line_end or len(buffer.text)
        if not self._show_code(buffer.position, end):
            return self._mode is ScanMode.AFTER_CALL
        buffer.position = end
        if line_end:
            self._mode, self._at_line_start = ScanMode.PROSE, True
        return bool(line_end)

    def _show_code(self, start: int, end: int) -> bool:
        """Show Markdown code up to `end`, or up to a call in it; return True if there is none."""
        buffer, formats = self._buffer, self._code_formats
        start = max(start, buffer.visible_end)
        candidate = self._find_format(formats, start, end) if formats else None
        family = candidate.entry.row.family if candidate and candidate.entry and self._span else ""
        after = AFTER_SUBJECT.match(buffer.text, end) if family == "pythonic" else None
        if after and after[1] is None:  # a sentence about the call
            candidate = self._candidate = None
        show = buffer.show_before_call if candidate and self._span else buffer.show
        show(candidate.start if candidate else end)
        if candidate and candidate.verdict is CallVerdict.YES and (buffer.is_final or not after):
            buffer.position = candidate.start
            self._accept(candidate)
        return candidate is None

    def _find_format(
        self, formats: FormatSet, position: int, end: int = sys.maxsize
    ) -> LeakCandidate | None:
        """Return the next candidate that begins before `end`."""
        buffer, candidate = self._buffer, self._candidate
        while True:
            if candidate is None:
                match = formats.anywhere_pattern.search(buffer.text, position, end)
                if match is None:
                    self._candidate = None
                    return None
                start = match.start()
                candidate = self._start_candidate(formats, start, self._code_position(start))
            if candidate.read(buffer.text, buffer.is_final) is not CallVerdict.NO:
                self._candidate = candidate
                return candidate
            position, candidate = candidate.start + 1, None

    def _code_position(self, position: int) -> StartPosition:
        """Return what kind of position this is; a span outside a sentence begins like a line."""
        span, before = self._span, self._buffer.look_back(position)[-1:]
        is_decided = span is not None and span.code_end is not None
        begins_line = before == "\n"
        if span is not None and self._code_formats is not None and before == "`":
            is_outside = self._delimiter_position >= StartPosition.MARK
            begins_line = is_outside if position == span.start else not is_decided  # another span
        inside = self._buffer.start_position_at(position, in_span=is_decided)
        return StartPosition.LINE if begins_line else inside

    def _read_reasoning(self, reasoning: ReasoningFormat) -> bool:
        formats = self._catalog.in_reasoning(reasoning, after_call=self._pending_call is not None)
        candidate = self._hide_up_to(formats, self._pending_call)
        if candidate is None or candidate.verdict is CallVerdict.OPEN or candidate.entry is None:
            return False
        if candidate.entry.row.kind is FormatKind.CALL and not reasoning.has_channels:
            self._candidate = None
            self._pending_call = self._new_hidden_text(candidate, candidate.entry)
            return True
        self._pending_call = None
        return self._accept(candidate)

    def _read_possible_reasoning(self, reasoning: ReasoningFormat) -> bool:
        """Withhold possible reasoning until an answer or a call confirms it."""
        buffer = self._buffer
        formats = self._catalog.in_reasoning(reasoning, after_call=False)
        candidate = self._find_format(formats, buffer.position)
        buffer.position = candidate.start if candidate else len(buffer.text)
        if candidate is not None and candidate.verdict is CallVerdict.YES:
            buffer.skip(candidate.start)
            return self._accept(candidate)
        if len(buffer.held) > MAX_AMBIGUOUS_LENGTH:
            self._mode = ScanMode.REASONING
            return True
        if buffer.is_final:
            self._candidate, self._context.accepts_ambiguous = None, False
            self._mode = ScanMode.PROSE
            buffer.position = buffer.visible_end + 1  # no format begins at the first character
        return buffer.is_final

    def _hide_up_to(
        self, formats: FormatSet | None, hidden: HiddenText | None
    ) -> LeakCandidate | None:
        buffer = self._buffer
        candidate = self._find_format(formats, buffer.position) if formats else None
        text = buffer.skip(candidate.start if candidate else len(buffer.text))
        if hidden is not None:
            hidden.append(text)
        return candidate

    def _new_hidden_text(self, candidate: LeakCandidate, entry: FormatEntry) -> HiddenText:
        return HiddenText(entry.row, self._buffer.base + candidate.start, self._catalog.tools)


def filter_leaks(
    text: str,
    tool_names: Iterable[str] = (),
    *,
    reasoning: Reasoning = "keep",
    mode: LeakMode = "lenient",
) -> Filtered:
    """Return what a reader may see of a whole text, and the calls in it."""
    leaks = LeakFilter(tool_names, reasoning=reasoning, mode=mode)
    visible, had_retracted = leaks.feed(text), leaks.has_retracted
    rest = leaks.close()
    is_retracted = leaks.has_retracted and not had_retracted
    return Filtered(rest if is_retracted else visible + rest, leaks.leaks)
