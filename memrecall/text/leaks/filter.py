"""Text in, visible text out: the filter that reads a model's answer as it arrives."""

import re
from collections.abc import Iterable

from memrecall.text.leaks.automaton import SENTENCE_ENDS
from memrecall.text.leaks.engine import Mode, Reader, behind_end
from memrecall.text.leaks.markdown import LONGEST_SPAN, CodeSpan, LineState, count_marks, is_indent
from memrecall.text.leaks.matchers import Reasoning
from memrecall.text.leaks.reports import Filtered, Leak

_STOPS = frozenset("`" + SENTENCE_ENDS)  # what nothing that is held begins with


def filter_leaks(
    text: str, tool_names: Iterable[str] = (), *, reasoning: Reasoning = "keep"
) -> Filtered:
    """Filter a whole text."""
    leaks = LeakFilter(tool_names, reasoning=reasoning)
    visible = leaks.feed(text) + leaks.close()
    return Filtered(visible, leaks.leaks)


class LeakFilter(Reader):
    """Hides tool calls that a model wrote as text, whatever pieces the text arrives in.

    One filter reads one answer. Everything from the first call on is hidden, because what rests on
    a call that nobody made has no ground; only a channel addressed to the reader is shown again.
    Nothing that is found is ever run. Markdown code is left alone. `reasoning` says what is done
    about thoughts: "keep" or "strip" them, or "open": strip, and the text begins inside of one.
    """

    @property
    def leaks(self) -> list[Leak]:
        """The calls found so far, in the order of the text; a name may become known later."""
        return [leak for hidden in self._hidden for leak in hidden.leaks()]

    @property
    def held(self) -> str:
        """What is held back now, because it may turn out to be a call: it may yet be shown."""
        return "" if self._mode in (Mode.THOUGHT, Mode.CALLED) else self._window.held

    def feed(self, chunk: str) -> str:
        """Take the next piece of the text; what of the text has become visible."""
        window = self._window
        if self._wakes is not None and chunk:  # nearly always: nothing begins in nearly all text
            text = window.text + chunk
            found = self._wakes(text)
            if found is None:
                shown, window.shown = window.shown, 0
                window.text = ""
                window.base += len(text)
                window.earlier, window.before = window.before, text
                return text[shown:]
            at = found.start()
            if at > 0 and found.end() == len(text) and text[at] not in _STOPS:
                return window.pass_over(text, at, at)
            visible = self._pass_over(text, found)
            if visible is not None:
                return visible
        elif self._span is not None and chunk:
            visible = self._pass_in_span(self._span, window.text + chunk)
            if visible is not None:
                return visible
        if window.last:
            raise ValueError("the filter is closed: each answer needs a new one")
        return self._work(chunk)

    def _pass_over(self, text: str, found: re.Match[str]) -> str | None:
        """Show a text in which something begins, if that needs no work yet."""
        window, at = self._window, found.start()
        if found[0] == "`":
            end = at + count_marks(text, at)
            if end == len(text):  # the run may go on
                return window.pass_over(text, at, end)
            more = self._watch.search[LineState.CODE].search(text, end)
            if more is not None and behind_end(more) < len(text):
                return None
            self._mode, self._wakes = Mode.SPAN, None
            self._span = CodeSpan(0, end - at, fence=False, looked=len(text) - end)
            return window.pass_over(text, end, len(text))
        start = behind_end(found)
        if start > at and found.end() == len(text):
            return window.pass_over(text, at, start)
        if found[0] == "\n" and is_indent(text[at:]):
            return window.pass_over(text, at, len(text))
        return None

    def _pass_in_span(self, span: CodeSpan, text: str) -> str | None:
        """Show a text that goes on with a span, if nothing that needs work begins in it."""
        at = len(self._window.text)
        if span.hunted < at or len(text) >= span.start + LONGEST_SPAN:
            return None
        has_marks = span.looked < at or "`" in text[at:]
        if has_marks and (end := span.decide(text, last=False)) is not None:
            return self._pass_behind_span(text, end) if isinstance(end, int) else None
        found = self._watch.search[LineState.CODE].search(text, max(at - 2, 0))
        if found and behind_end(found) < len(text) and text[found.start() :].strip("`"):
            return None
        span.hunted = len(text)
        if not has_marks:
            span.looked = len(text)
        return self._window.extend(text)

    def _pass_behind_span(self, text: str, end: int) -> str | None:
        """Show a text that goes on behind a span, if it ends there, as one of prose."""
        if end < 0:
            return None
        search = self._search.search
        found = search(text, end)
        mode, span = self._mode, self._span
        self._mode, self._span, self._wakes = Mode.PROSE, None, search
        visible = self._window.pass_all(text) if found is None else self._pass_over(text, found)
        if visible is None:
            self._mode, self._span, self._wakes = mode, span, None
        return visible

    def close(self) -> str:
        """End the text; the rest of what is visible."""
        if self._window.last:
            return ""
        self._window.last = True
        visible = self._work("")
        if self._weighed is not None:
            self._hidden.append(self._weighed)
        return visible
