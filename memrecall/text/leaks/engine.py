"""The scanner that decides which parts of a text are visible."""

import re
import sys
from collections.abc import Iterable

from memrecall.text.leaks.automaton import sentence_start
from memrecall.text.leaks.buffer import LeakCandidate, MarkerContext, ScanMode, TextBuffer
from memrecall.text.leaks.channels import MAX_AMBIGUOUS_LENGTH, TAG_MENTION, ReasoningFormat
from memrecall.text.leaks.formats import FormatKind, StartPosition
from memrecall.text.leaks.json_calls import CallVerdict
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
from memrecall.text.leaks.matchers import (
    FormatEntry,
    FormatSet,
    LeakMode,
    Reasoning,
    get_formats,
    unique_names,
)
from memrecall.text.leaks.reports import HiddenText
from memrecall.text.leaks.tool_formats import AFTER_SUBJECT


class LeakScanner:
    """A state machine over a text that arrives in pieces."""

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
        self._at_line_start = self._at_answer_start = True  # nothing of it was read
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
        self._may_retract, self.has_retracted = reasoning == "auto", False
        if reasoning == "open":
            self._mode, self._reasoning = ScanMode.REASONING, self._catalog.initial_reasoning

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
                if candidate is not None or not self._in_line:
                    return candidate
            match = self._search.search(buffer.text, buffer.position)
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

    @property
    def _in_line(self) -> bool:
        return self._mode is ScanMode.PROSE and not self._at_line_start

    @property
    def _search(self) -> re.Pattern[str]:
        return self._formats.search[self._indentation.lines]

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
            return self._start_reasoning(candidate, entry.reasoning)
        buffer.skip(candidate.marker_end)
        if entry.is_stray_end:
            self._retract()
        self._mode, self._at_line_start, self._at_answer_start = ScanMode.PROSE, True, True
        self._indentation = Indentation()
        if entry.answer is not None:
            buffer.begin_channel(is_first=self._formats is self._catalog.prose())
            self._formats = self._catalog.prose(entry.answer)
        return True

    def _retract(self) -> None:
        """Take back all visible text in `auto`, once: it was reasoning without a beginning."""
        if self._may_retract:
            self._may_retract, self.has_retracted = False, True
            self._buffer.retract()

    def _start_reasoning(self, candidate: LeakCandidate, reasoning: ReasoningFormat) -> bool:
        self._reasoning = reasoning
        if reasoning.is_ambiguous:
            self._mode = ScanMode.POSSIBLE_REASONING
            self._buffer.position = candidate.end
        else:
            self._mode = ScanMode.REASONING
            self._buffer.skip(candidate.end - 1)  # its last character may begin the end marker
        return True

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
        is_decided, begins_line = span is not None and span.code_end is not None, before == "\n"
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
