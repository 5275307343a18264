"""Text in, visible text out: the filter that reads a model's answer as it arrives."""

import re
from collections.abc import Callable, Iterable
from enum import Enum

from memrecall.errors import InvalidArgument
from memrecall.text.leaks.automaton import SENTENCE_ENDS
from memrecall.text.leaks.candidates import Candidate
from memrecall.text.leaks.formats import TAG_TOLD, Kind, Place, Thought
from memrecall.text.leaks.json_calls import Verdict
from memrecall.text.leaks.markdown import (
    FENCE,
    INDENT,
    LONGEST_SPAN,
    Fence,
    Indentation,
    Lines,
    Span,
    count_marks,
    is_indent,
)
from memrecall.text.leaks.reports import Filtered, Hidden, Leak
from memrecall.text.leaks.watches import Form, Reasoning, Watch, formats_for
from memrecall.text.leaks.window import Window

_NEWLINE = re.compile(r"\n")
_STOPS = frozenset("`" + SENTENCE_ENDS)  # what nothing that is held begins with
LONGEST_DOUBT = 32_768  # characters: what goes on for so long without an answer is a thought


def filter_leaks(
    text: str, tool_names: Iterable[str] = (), *, reasoning: Reasoning = "keep"
) -> Filtered:
    """Filter a whole text."""
    leaks = LeakFilter(tool_names, reasoning=reasoning)
    visible = leaks.feed(text) + leaks.close()
    return Filtered(visible, leaks.leaks)


def _behind_end(found: re.Match[str]) -> int:
    """Where that begins which was found: behind the end of a sentence, if it is found with it."""
    start, text = found.start(), found[0]
    if text[0] not in SENTENCE_ENDS or text == "\n":
        return start
    return start + (2 if text[1:2] == " " else 1)


class _Mode(Enum):
    """What the text is in at the place that was reached."""

    PROSE = "prose"
    MARKS = "marks"  # a run of backticks or tildes, which may open code
    SPAN = "span"  # what may be code between backticks
    FENCE = "fence"
    INDENTED = "indented"  # a line of code
    DOUBT = "doubt"  # what is a thought if its answer follows, and prose if not
    THOUGHT = "thought"
    CALLED = "called"  # what follows a call


class LeakFilter:
    """Hides tool calls that a model wrote as text, whatever pieces the text arrives in.

    One filter reads one answer. Everything from the first call on is hidden, because what rests on
    a call that nobody made has no ground; only a channel addressed to the reader is shown again.
    Nothing that is found is ever run. Markdown code is left alone. `reasoning` says what is done
    about thoughts: "keep" or "strip" them, or "open": strip, and the text begins inside of one.
    """

    def __init__(self, tool_names: Iterable[str] = (), *, reasoning: Reasoning = "keep") -> None:
        if isinstance(tool_names, str):
            raise InvalidArgument(f"tool_names is a list of names, not the text {tool_names!r}")
        self._formats = formats_for(tuple(sorted(set(tool_names) - {""})), reasoning)
        self._watch = self._formats.prose()
        self._window = Window()
        self._wakes: Callable[[str], re.Match[str] | None] | None = None
        self._mode = _Mode.PROSE
        self._fresh = True  # nothing was read of the line
        self._blank = True  # nothing was read of the answer
        self._indentation = Indentation()
        self._place = Place.START  # of the marks in work
        self._candidate: Candidate | None = None
        self._span: Span | None = None
        self._fence: Fence | None = None
        self._thought: Thought | None = None
        self._doubts = True  # whether a thought may be doubtful: no longer once none was at the end
        self._tags_told = False  # whether the text spoke of the tags around thoughts
        self._weighed: Hidden | None = None  # a call in a thought that may yet end
        self._hidden: list[Hidden] = []
        self._data_end = 0  # JSON that begins before it is known to be data
        if reasoning == "open":
            self._mode, self._thought = _Mode.THOUGHT, self._formats.opened

    @property
    def leaks(self) -> list[Leak]:
        """The calls found so far, in the order of the text; a name may become known later."""
        return [leak for hidden in self._hidden for leak in hidden.leaks()]

    @property
    def held(self) -> str:
        """What is held back now, because it may turn out to be a call: it may yet be shown."""
        return "" if self._mode in (_Mode.THOUGHT, _Mode.CALLED) else self._window.held

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
            more = self._watch.search[Lines.CODE].search(text, end)
            if more is not None and _behind_end(more) < len(text):
                return None
            self._mode, self._wakes = _Mode.SPAN, None
            self._span = Span(0, end - at, fence=False, looked=len(text) - end)
            return window.pass_over(text, end, len(text))
        start = _behind_end(found)
        if start > at and found.end() == len(text):
            return window.pass_over(text, at, start)
        if found[0] == "\n" and is_indent(text[at:]):
            return window.pass_over(text, at, len(text))
        return None

    def _pass_in_span(self, span: Span, text: str) -> str | None:
        """Show a text that goes on with a span, if nothing that needs work begins in it."""
        at = len(self._window.text)
        if span.hunted < at or len(text) >= span.start + LONGEST_SPAN:
            return None
        if span.looked < at or "`" in text[at:]:
            end = span.decide(text, last=False)
            if end is not None:
                return self._pass_behind_span(text, end) if type(end) is int and end > 0 else None
        else:
            span.looked = len(text)
        found = self._watch.search[Lines.CODE].search(text, max(at - 2, 0))
        if found and _behind_end(found) < len(text) and text[found.start() :].strip("`"):
            span.looked = min(span.looked, at)
            return None
        span.hunted = len(text)
        return self._window.extend(text)

    def _pass_behind_span(self, text: str, end: int) -> str | None:
        search = self._search.search
        found = search(text, end)
        mode, span = self._mode, self._span
        self._mode, self._span, self._wakes = _Mode.PROSE, None, search
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

    def _work(self, chunk: str) -> str:
        window = self._window
        window.text += chunk
        while self._step():
            pass
        cut = window.trim()
        if self._candidate is not None:
            self._candidate.move(cut)
        if self._span is not None:
            self._span.move(cut)
        self._wakes = None if window.held or window.last else self._waking()
        return window.take_pieces()

    def _waking(self) -> Callable[[str], re.Match[str] | None] | None:
        """What finds the pieces that need work, where others can be shown as they come."""
        if self._in_line:
            return self._search.search
        in_line = self._fence is not None and not self._fence.at_line
        if in_line or self._mode is _Mode.INDENTED:
            return _NEWLINE.search
        return None

    def _step(self) -> bool:
        """Read on in the present mode; whether there is something left to read."""
        match self._mode:
            case _Mode.PROSE:
                return self._read_prose()
            case _Mode.MARKS:
                return self._read_marks()
            case _Mode.SPAN if self._span is not None:
                return self._read_span(self._span)
            case _Mode.FENCE if self._fence is not None:
                return self._read_fence(self._fence)
            case _Mode.INDENTED:
                return self._read_indented()
            case _Mode.DOUBT if self._thought is not None:
                return self._read_doubt(self._thought)
            case _Mode.THOUGHT if self._thought is not None:
                return self._read_thought(self._thought)
        return self._read_called(self._hidden[-1])

    def _read_prose(self) -> bool:
        window = self._window
        candidate = self._candidate or self._seek()
        if self._mode is not _Mode.PROSE:
            return True
        if candidate is None:
            window.show(len(window.text))
            return False
        verdict = candidate.read(window.text, window.last)
        self._candidate = candidate if verdict is Verdict.OPEN else None
        if verdict is Verdict.NO or (verdict is Verdict.YES and self._is_prose(candidate)):
            self._reject(candidate)
            return True
        window.show(candidate.start)
        return self._take(candidate)

    def _seek(self) -> Candidate | None:
        """The next place where a form could begin, or where code could."""
        window = self._window
        while True:
            if self._fresh:
                candidate = self._begin_line()
                if candidate is not None or not self._in_line:
                    return candidate
            found = self._search.search(window.text, window.at)
            if found is None:
                window.at = len(window.text)
                return None
            window.at = found.start()
            start = _behind_end(found)
            if start == len(window.text):
                return None  # a sentence may begin there
            if start > window.at:
                window.at = start
                return self._begin(self._watch, start, Place.SENTENCE)
            if found[0] == "`":
                self._mode, self._place = _Mode.MARKS, Place.WORD
                return None
            if found[0] == "\n" and not window.last and is_indent(window.text[window.at :]):
                return None
            if found[0] != "\n":
                return self._begin(self._watch, window.at, window.place_at(window.at))
            window.at += 1
            self._fresh = True

    def _begin_line(self) -> Candidate | None:
        """Read the indentation; what begins with the first word of a line, if that has come."""
        window = self._window
        if (indent := INDENT.match(window.text, window.at)) and indent[0]:
            self._indentation.read(indent[0])
            window.at = indent.end()
        if window.at == len(window.text):
            return None
        place = Place.START if self._blank else Place.LINE
        self._fresh = self._blank = False
        char = window.text[window.at]
        if self._indentation.begin_line(char) and place is Place.LINE:
            self._mode = _Mode.INDENTED
        elif self._watch.starts[place][char].alive:
            return self._begin(self._watch, window.at, place)
        elif char in "`~":
            self._mode, self._place = _Mode.MARKS, place
        return None

    @property
    def _in_line(self) -> bool:
        """Whether the text goes on inside a line of prose."""
        return self._mode is _Mode.PROSE and not self._fresh

    @property
    def _search(self) -> re.Pattern[str]:
        return self._watch.search[self._indentation.lines]

    def _begin(self, watch: Watch, at: int, place: Place) -> Candidate:
        is_data = self._window.base + at < self._data_end
        names = None if is_data else self._formats.names
        return Candidate(at, place, watch.starts[place], names)

    def _reject(self, candidate: Candidate) -> None:
        """Go on behind a place where no form was."""
        window = self._window
        if candidate.was_json:
            self._data_end = max(self._data_end, window.base + candidate.reach)
        if TAG_TOLD.match(window.text, candidate.start):
            self._tags_told = True
        mark = window.text[candidate.start]
        if mark == "`" or (mark == "~" and candidate.place >= Place.LINE):
            self._mode, self._place = _Mode.MARKS, candidate.place
        else:
            window.at = candidate.start + 1

    def _is_prose(self, candidate: Candidate) -> bool:
        """Whether a thought's beginning or end is none, for all that stands before it."""
        thought = candidate.form.thought if candidate.form else None
        if thought is None:
            return False
        if candidate.form is not None and candidate.form.row.kind is Kind.THOUGHT:
            return thought.doubtful and not self._doubts
        in_sentence = candidate.place is Place.WORD
        before = self._window.look_back(candidate.start)
        return self._tags_told or (in_sentence and before.endswith(" "))

    def _take(self, candidate: Candidate) -> bool:
        """Do what a form asks for; false if it is not complete."""
        form, window = candidate.form, self._window
        if candidate.verdict is not Verdict.YES or form is None:
            return False
        self._candidate = None
        if form.row.kind in (Kind.CALL, Kind.JSON):
            self._hidden.append(self._hide_from(candidate, form))
            self._mode = _Mode.CALLED
            return True
        if form.row.kind is Kind.THOUGHT and form.thought is not None:
            return self._take_thought(candidate, form.thought)
        window.skip(candidate.reach)
        self._mode, self._fresh, self._blank = _Mode.PROSE, True, True
        self._indentation = Indentation()
        if form.answer is not None:
            self._watch = self._formats.prose(form.answer)
        return True

    def _take_thought(self, candidate: Candidate, thought: Thought) -> bool:
        self._thought = thought
        if thought.doubtful:
            self._mode = _Mode.DOUBT
            self._window.at = candidate.reach
        else:
            self._mode = _Mode.THOUGHT
            self._window.skip(candidate.reach - 1)  # the last sign may be the first of its end
        return True

    def _read_marks(self) -> bool:
        """Tell what a run of marks opens."""
        window = self._window
        start, mark = window.at, window.text[window.at]
        end = start + count_marks(window.text, start)
        if end == len(window.text) and not window.last:
            window.show(end)
            return False
        window.at = end
        may_be_fence = self._place >= Place.LINE and end - start >= FENCE
        if mark == "`":
            self._mode, self._span = _Mode.SPAN, Span(end, end - start, may_be_fence, looked=end)
        elif may_be_fence:
            self._mode, self._fence = _Mode.FENCE, Fence(mark, end - start)
        else:
            self._mode = _Mode.PROSE
        return True

    def _read_span(self, span: Span) -> bool:
        window = self._window
        end = span.decide(window.text, window.last)
        if end is None:
            found = self._hunt(self._watch, span.hunted)
            span.hunted = found.start if found else len(window.text)
            window.show(span.hunted)
            return False
        self._span = self._candidate = None
        self._mode = _Mode.PROSE
        if isinstance(end, Fence):
            self._mode, self._fence = _Mode.FENCE, end
        elif end > 0:
            window.at = end
        return True

    def _read_fence(self, fence: Fence) -> bool:
        window = self._window
        window.at, closed = fence.read(window.text, window.at, window.last)
        window.show(window.at if closed else len(window.text))
        if closed:
            self._mode, self._fence = _Mode.PROSE, None
        return closed

    def _read_indented(self) -> bool:
        """Pass over the rest of a line of code."""
        window = self._window
        end = window.text.find("\n", window.at) + 1
        window.at = end or len(window.text)
        window.show(window.at)
        if end:
            self._mode, self._fresh = _Mode.PROSE, True
        return bool(end)

    def _hunt(self, watch: Watch, at: int) -> Candidate | None:
        """The next place where a form is or may still be, whatever stands around it."""
        window = self._window
        candidate = self._candidate
        while True:
            if candidate is None:
                found = watch.hunt.search(window.text, at)
                if found is None:
                    self._candidate = None
                    return None
                place = window.place_at(found.start())
                candidate = self._begin(watch, found.start(), place)
            if candidate.read(window.text, window.last) is not Verdict.NO:
                self._candidate = candidate
                return candidate
            at = candidate.start + 1
            candidate = None

    def _read_thought(self, thought: Thought) -> bool:
        watch = self._formats.thought(thought, called=self._weighed is not None)
        found = self._hide_up_to(watch, self._weighed)
        if found is None or found.verdict is Verdict.OPEN or found.form is None:
            return False
        if found.form.row.kind is Kind.CALL and not thought.channels:
            self._candidate, self._weighed = None, self._hide_from(found, found.form)
            return True
        self._weighed = None
        return self._take(found)

    def _read_doubt(self, thought: Thought) -> bool:
        """Hold back what may be a thought until its answer, or a call, says that it is one."""
        window = self._window
        found = self._hunt(self._formats.thought(thought, called=False), window.at)
        window.at = found.start if found else len(window.text)
        if found is not None and found.verdict is Verdict.YES:
            window.skip(found.start)
            return self._take(found)
        if len(window.held) > LONGEST_DOUBT:
            self._mode = _Mode.THOUGHT
            return True
        if window.last:
            self._candidate, self._doubts = None, False
            self._mode = _Mode.PROSE
            window.rewind()
        return window.last

    def _read_called(self, hidden: Hidden) -> bool:
        found = self._hide_up_to(self._formats.called(hidden.family), hidden)
        return found is not None and self._take(found)

    def _hide_up_to(self, watch: Watch | None, hidden: Hidden | None) -> Candidate | None:
        """Hide the text up to the next place where a form is or may be."""
        window = self._window
        found = self._hunt(watch, window.at) if watch else None
        text = window.skip(found.start if found else len(window.text))
        if hidden is not None:
            hidden.keep(text)
        return found

    def _hide_from(self, candidate: Candidate, form: Form) -> Hidden:
        position = self._window.base + candidate.start
        return Hidden(form.row.family, position, self._formats.tools)
