"""The buffered end of a text, and the candidate that is being matched in it."""

import re
from dataclasses import dataclass, field
from enum import Enum

from memrecall.text.leaks.automaton import SENTENCE_ENDS, SPACES, AutomatonState
from memrecall.text.leaks.formats import FormatKind, StartPosition
from memrecall.text.leaks.json_calls import MAX_JSON_LENGTH, CallVerdict, JsonReader, NamePrefixes
from memrecall.text.leaks.matchers import FormatEntry

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
            return self._judge_incomplete(state.truncated, end == limit, is_final)
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
        before, self._max_length = (
            self._max_length,
            min(MAX_FORMAT_LENGTH + blanks, MAX_JSON_LENGTH),
        )
        return self._max_length > before

    def move(self, by: int) -> None:
        """Adjust the positions to a text that lost `by` characters at its start."""
        self.start -= by
        self.end -= by

    def _judge_incomplete(
        self, truncated: FormatEntry | None, too_long: bool, is_final: bool
    ) -> CallVerdict:
        self.entry = truncated
        if not too_long and not is_final:
            return CallVerdict.OPEN
        if truncated is None or (too_long and not truncated.row.may_exceed_limit):
            return CallVerdict.NO
        self.is_truncated = True
        return CallVerdict.YES

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
        if reader.verdict is CallVerdict.YES and self._must_be_whole(text):
            return self._read_fence(text, is_final)
        if reader.verdict is not CallVerdict.OPEN:
            return reader.verdict
        if is_final and reader.is_truncated_call:
            return CallVerdict.YES
        return CallVerdict.NO if is_final or self.end >= limit else CallVerdict.OPEN

    def _must_be_whole(self, text: str) -> bool:
        """Return True for a fence that is a call only if it is the whole answer."""
        row = self.entry.row if self.entry else None
        return (
            text[self.start] == "`"
            and row is not None
            and row.start_position is StartPosition.START
        )

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
