"""The filter for a model's answer, as a whole or as it is streamed."""

import re
from collections.abc import Iterable

from memrecall.text.leaks.automaton import SENTENCE_ENDS, sentence_start
from memrecall.text.leaks.buffer import ScanMode
from memrecall.text.leaks.engine import LeakScanner
from memrecall.text.leaks.markdown import (
    FENCE,
    MAX_SPAN_LENGTH,
    CodeSpan,
    LineState,
    delimiter_length,
    may_be_indent,
)
from memrecall.text.leaks.matchers import LeakMode, Reasoning
from memrecall.text.leaks.reports import Filtered, Leak

_STOPS = frozenset("`>" + SENTENCE_ENDS)  # at the ends of text that may be more than withheld


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


class LeakFilter(LeakScanner):
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
        buffer = self._buffer
        if self._fast_search is not None and chunk:  # the common case: no format begins in the text
            text = buffer.text + chunk
            match = self._fast_search(text)
            if match is None:
                return buffer.advance_all(text)
            position, end = match.span()
            in_word = f"a{buffer.last_piece[-1:]}".isidentifier() and not (position or buffer.text)
            is_open = end == match.endpos and _STOPS.isdisjoint((text[position], text[end - 1]))
            if is_open and not in_word:
                return buffer.advance(text, position, position)
            visible = self._show_prose(text, match)
            if visible is not None:
                return visible
        elif self._span is not None and chunk:
            visible = self._show_in_span(self._span, buffer.text + chunk)
            if visible is not None:
                return visible
        if buffer.is_final:
            raise ValueError("the filter is closed; create a new one for each answer")
        return self._process(chunk)

    def _show_prose(self, text: str, match: re.Match[str]) -> str | None:
        """Return the visible part of a text with a match in it, None if it needs processing."""
        buffer, position, size = self._buffer, match.start(), match.endpos
        if match[0] == "`":
            end = position + delimiter_length(text, position)
            if self._code_formats and end - position >= FENCE:
                return None
            if end == size:  # the run may continue
                return buffer.advance(text, position, position if self._code_formats else end)
            formats = self._code_formats
            if formats and (opening := formats.anywhere_pattern.match(text, end)):
                is_open = opening.end() == size
                return buffer.advance(text, position, position) if is_open else None
            more = self._formats.in_span.search[LineState.CODE].search(text, end)
            if more is not None and sentence_start(more) < size:
                return None
            self._mode, self._fast_search = ScanMode.SPAN, None
            self._span = CodeSpan(0, end - position, fence=False, searched_end=size - end)
            return buffer.advance(text, end, size)
        start = sentence_start(match)
        if start > position and match.end() == size:
            return buffer.advance(text, position, start)
        if match[0] == "\n" and may_be_indent(text[position:]):
            return buffer.advance(text, position, size)
        return None

    def _show_in_span(self, span: CodeSpan, text: str) -> str | None:
        """Return the visible part of a text inside a code span, None if it needs processing."""
        position = len(self._buffer.text)
        if self._candidate is not None or span.scanned_end < position - 2:
            return None
        if len(text) >= span.start + MAX_SPAN_LENGTH:
            return None
        has_marks = span.searched_end < position or "`" in text[position:]
        formats, start = self._code_formats, max(position - 2, 0)
        if has_marks:
            end = span.decide(text, is_final=False)
            size = end if isinstance(end, int) and end > 0 else len(text)  # of the span so far
            if formats and formats.anywhere_pattern.search(text, start, size):
                return None
            if end is not None:
                return self._show_after_span(text, end) if isinstance(end, int) else None
        if formats and text[-1] == "`":  # a call may follow
            return self._hold_mark(span, text)
        match = self._formats.in_span.search[LineState.CODE].search(text, start)
        scanned_end = len(text)
        if match and sentence_start(match) < len(text) and text[match.start() :].strip("`"):
            scanned_end = match.start()
            if len(text) - scanned_end > 2 or not self._may_hold(text, scanned_end):
                return None  # a shorter text is searched again with the next chunk
        span.scanned_end = scanned_end
        if not has_marks:
            span.searched_end = len(text)
        return self._buffer.advance(text, 0, scanned_end)

    def _hold_mark(self, span: CodeSpan, text: str) -> str | None:
        """Return what is visible before a mark at the end, None if it needs processing."""
        start, searched_end = len(text) - 1, max(len(self._buffer.text) - 2, 0)
        search = self._formats.in_span.search[LineState.CODE].search
        if not self._may_hold(text, start) or search(text, searched_end, start):
            return None
        span.scanned_end = start
        return self._buffer.advance(text, 0, start)

    def _may_hold(self, text: str, start: int) -> bool:
        """Return True if the end of an undecided span can wait for more, without processing."""
        is_shown = start < self._buffer.visible_end
        follows_mark = start == 0 or text[start - 1] == "`"  # which is hidden with a call
        return not (is_shown or follows_mark or "\n" in text[start:])

    def _show_after_span(self, text: str, end: int) -> str | None:
        """Return the visible part of a text after a code span, None if it needs processing."""
        if end < 0:
            return None
        search = self._search.search
        match = search(text, end)
        mode, span = self._mode, self._span
        self._mode, self._span, self._fast_search = ScanMode.PROSE, None, search
        if match is None:
            return self._buffer.advance_all(text)
        visible = self._show_prose(text, match)
        if visible is None:
            self._mode, self._span, self._fast_search = mode, span, None
        return visible

    def close(self) -> str:
        """End the text, and return the rest of what is visible."""
        if self._buffer.is_final:
            return ""
        self._buffer.is_final = True
        visible = self._process("")
        if self._pending_call is not None:
            self._hidden_texts.append(self._pending_call)
        return visible
