"""The engine: reads what has come of a text, and tells what of it may be seen."""

import re
from collections.abc import Callable, Iterable
from enum import Enum

from memrecall.errors import InvalidArgument
from memrecall.text.leaks.automaton import SENTENCE_ENDS
from memrecall.text.leaks.candidates import LeakCandidate
from memrecall.text.leaks.formats import TAG_TOLD, Kind, StartPosition, Thought
from memrecall.text.leaks.json_calls import CallVerdict
from memrecall.text.leaks.markdown import (
    FENCE,
    INDENT,
    CodeSpan,
    Fence,
    Indentation,
    count_marks,
    is_indent,
)
from memrecall.text.leaks.matchers import Form, Reasoning, Watch, formats_for
from memrecall.text.leaks.reports import Hidden
from memrecall.text.leaks.window import TextWindow

LONGEST_DOUBT = 32_768  # characters: what goes on for so long without an answer is a thought
_NEWLINE = re.compile(r"\n")


def behind_end(found: re.Match[str]) -> int:
    """Where that begins which was found: behind the end of a sentence, if it is found with it."""
    start, text = found.start(), found[0]
    if text[0] not in SENTENCE_ENDS or text == "\n":
        return start
    return start + (2 if text[1:2] == " " else 1)


class Mode(Enum):
    """What the text is in at the place that was reached."""

    PROSE = "prose"
    MARKS = "marks"  # a run of backticks or tildes, which may open code
    SPAN = "span"  # what may be code between backticks
    FENCE = "fence"
    INDENTED = "indented"  # a line of code
    DOUBT = "doubt"  # what is a thought if its answer follows, and prose if not
    THOUGHT = "thought"
    CALLED = "called"  # what follows a call


class Reader:
    """Reads a text piece by piece, in the mode that the place it has reached is in."""

    def __init__(self, tool_names: Iterable[str] = (), *, reasoning: Reasoning = "keep") -> None:
        if isinstance(tool_names, str):
            raise InvalidArgument(f"tool_names is a list of names, not the text {tool_names!r}")
        self._formats = formats_for(tuple(sorted(set(tool_names) - {""})), reasoning)
        self._watch = self._formats.prose()
        self._window = TextWindow()
        self._wakes: Callable[[str], re.Match[str] | None] | None = None
        self._mode = Mode.PROSE
        self._fresh = True  # nothing was read of the line
        self._blank = True  # nothing was read of the answer
        self._indentation = Indentation()
        self._place = StartPosition.START  # of the marks in work
        self._candidate: LeakCandidate | None = None
        self._span: CodeSpan | None = None
        self._fence: Fence | None = None
        self._thought: Thought | None = None
        self._doubts = True  # whether a thought may be doubtful: no longer once none was at the end
        self._tags_told = False  # whether the text spoke of the tags around thoughts
        self._weighed: Hidden | None = None  # a call in a thought that may yet end
        self._hidden: list[Hidden] = []
        self._data_end = 0  # JSON that begins before it is known to be data
        if reasoning == "open":
            self._mode, self._thought = Mode.THOUGHT, self._formats.opened

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
        if in_line or self._mode is Mode.INDENTED:
            return _NEWLINE.search
        return None

    def _step(self) -> bool:
        """Read on in the present mode; whether there is something left to read."""
        match self._mode:
            case Mode.PROSE:
                return self._read_prose()
            case Mode.MARKS:
                return self._read_marks()
            case Mode.SPAN if self._span is not None:
                return self._read_span(self._span)
            case Mode.FENCE if self._fence is not None:
                return self._read_fence(self._fence)
            case Mode.INDENTED:
                return self._read_indented()
            case Mode.DOUBT if self._thought is not None:
                return self._read_doubt(self._thought)
            case Mode.THOUGHT if self._thought is not None:
                return self._read_thought(self._thought)
        return self._read_called(self._hidden[-1])

    def _read_prose(self) -> bool:
        window = self._window
        candidate = self._candidate or self._seek()
        if self._mode is not Mode.PROSE:
            return True
        if candidate is None:
            window.show(len(window.text))
            return False
        verdict = candidate.read(window.text, window.last)
        self._candidate = candidate if verdict is CallVerdict.OPEN else None
        if verdict is CallVerdict.NO or (verdict is CallVerdict.YES and self._is_prose(candidate)):
            self._reject(candidate)
            return True
        window.show(candidate.start)
        return self._take(candidate)

    def _seek(self) -> LeakCandidate | None:
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
            start = behind_end(found)
            if start == len(window.text):
                return None  # a sentence may begin there
            if start > window.at:
                window.at = start
                return self._begin(self._watch, start, StartPosition.SENTENCE)
            if found[0] == "`":
                self._mode, self._place = Mode.MARKS, StartPosition.WORD
                return None
            if found[0] == "\n" and not window.last and is_indent(window.text[window.at :]):
                return None
            if found[0] != "\n":
                return self._begin(self._watch, window.at, window.place_at(window.at))
            window.at += 1
            self._fresh = True

    def _begin_line(self) -> LeakCandidate | None:
        """Read the indentation; what begins with the first word of a line, if that has come."""
        window = self._window
        if (indent := INDENT.match(window.text, window.at)) and indent[0]:
            self._indentation.read(indent[0])
            window.at = indent.end()
        if window.at == len(window.text):
            return None
        place = StartPosition.START if self._blank else StartPosition.LINE
        self._fresh = self._blank = False
        char = window.text[window.at]
        if self._indentation.begin_line(char) and place is StartPosition.LINE:
            self._mode = Mode.INDENTED
        elif self._watch.starts[place][char].alive:
            return self._begin(self._watch, window.at, place)
        elif char in "`~":
            self._mode, self._place = Mode.MARKS, place
        return None

    @property
    def _in_line(self) -> bool:
        """Whether the text goes on inside a line of prose."""
        return self._mode is Mode.PROSE and not self._fresh

    @property
    def _search(self) -> re.Pattern[str]:
        return self._watch.search[self._indentation.lines]

    def _begin(self, watch: Watch, at: int, place: StartPosition) -> LeakCandidate:
        is_data = self._window.base + at < self._data_end
        names = None if is_data else self._formats.names
        return LeakCandidate(at, place, watch.starts[place], names)

    def _reject(self, candidate: LeakCandidate) -> None:
        """Go on behind a place where no form was."""
        window = self._window
        if candidate.was_json:
            self._data_end = max(self._data_end, window.base + candidate.reach)
        if TAG_TOLD.match(window.text, candidate.start):
            self._tags_told = True
        mark = window.text[candidate.start]
        if mark == "`" or (mark == "~" and candidate.place >= StartPosition.LINE):
            self._mode, self._place = Mode.MARKS, candidate.place
        else:
            window.at = candidate.start + 1

    def _is_prose(self, candidate: LeakCandidate) -> bool:
        """Whether a thought's beginning or end is none, for all that stands before it."""
        thought = candidate.form.thought if candidate.form else None
        if thought is None:
            return False
        if candidate.form is not None and candidate.form.row.kind is Kind.THOUGHT:
            return thought.doubtful and not self._doubts
        in_sentence = candidate.place is StartPosition.WORD
        before = self._window.look_back(candidate.start)
        return self._tags_told or (in_sentence and before.endswith(" "))

    def _take(self, candidate: LeakCandidate) -> bool:
        """Do what a form asks for; false if it is not complete."""
        form, window = candidate.form, self._window
        if candidate.verdict is not CallVerdict.YES or form is None:
            return False
        self._candidate = None
        if form.row.kind in (Kind.CALL, Kind.JSON):
            self._hidden.append(self._hide_from(candidate, form))
            self._mode = Mode.CALLED
            return True
        if form.row.kind is Kind.THOUGHT and form.thought is not None:
            return self._take_thought(candidate, form.thought)
        window.skip(candidate.reach)
        self._mode, self._fresh, self._blank = Mode.PROSE, True, True
        self._indentation = Indentation()
        if form.answer is not None:
            self._watch = self._formats.prose(form.answer)
        return True

    def _take_thought(self, candidate: LeakCandidate, thought: Thought) -> bool:
        self._thought = thought
        if thought.doubtful:
            self._mode = Mode.DOUBT
            self._window.at = candidate.reach
        else:
            self._mode = Mode.THOUGHT
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
        may_be_fence = self._place >= StartPosition.LINE and end - start >= FENCE
        if mark == "`":
            self._mode, self._span = Mode.SPAN, CodeSpan(end, end - start, may_be_fence, looked=end)
        elif may_be_fence:
            self._mode, self._fence = Mode.FENCE, Fence(mark, end - start)
        else:
            self._mode = Mode.PROSE
        return True

    def _read_span(self, span: CodeSpan) -> bool:
        window = self._window
        end = span.decide(window.text, window.last)
        if end is None:
            found = self._hunt(self._watch, span.hunted)
            span.hunted = found.start if found else len(window.text)
            window.show(span.hunted)
            return False
        self._span = self._candidate = None
        self._mode = Mode.PROSE
        if isinstance(end, Fence):
            self._mode, self._fence = Mode.FENCE, end
        elif end > 0:
            window.at = end
        return True

    def _read_fence(self, fence: Fence) -> bool:
        window = self._window
        window.at, closed = fence.read(window.text, window.at, window.last)
        window.show(window.at if closed else len(window.text))
        if closed:
            self._mode, self._fence = Mode.PROSE, None
        return closed

    def _read_indented(self) -> bool:
        """Pass over the rest of a line of code."""
        window = self._window
        end = window.text.find("\n", window.at) + 1
        window.at = end or len(window.text)
        window.show(window.at)
        if end:
            self._mode, self._fresh = Mode.PROSE, True
        return bool(end)

    def _hunt(self, watch: Watch, at: int) -> LeakCandidate | None:
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
            if candidate.read(window.text, window.last) is not CallVerdict.NO:
                self._candidate = candidate
                return candidate
            at = candidate.start + 1
            candidate = None

    def _read_thought(self, thought: Thought) -> bool:
        watch = self._formats.thought(thought, called=self._weighed is not None)
        found = self._hide_up_to(watch, self._weighed)
        if found is None or found.verdict is CallVerdict.OPEN or found.form is None:
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
        if found is not None and found.verdict is CallVerdict.YES:
            window.skip(found.start)
            return self._take(found)
        if len(window.held) > LONGEST_DOUBT:
            self._mode = Mode.THOUGHT
            return True
        if window.last:
            self._candidate, self._doubts = None, False
            self._mode = Mode.PROSE
            window.rewind()
        return window.last

    def _read_called(self, hidden: Hidden) -> bool:
        found = self._hide_up_to(self._formats.called(hidden.family), hidden)
        return found is not None and self._take(found)

    def _hide_up_to(self, watch: Watch | None, hidden: Hidden | None) -> LeakCandidate | None:
        """Hide the text up to the next place where a form is or may be."""
        window = self._window
        found = self._hunt(watch, window.at) if watch else None
        text = window.skip(found.start if found else len(window.text))
        if hidden is not None:
            hidden.keep(text)
        return found

    def _hide_from(self, candidate: LeakCandidate, form: Form) -> Hidden:
        position = self._window.base + candidate.start
        return Hidden(form.row.family, position, self._formats.tools)
