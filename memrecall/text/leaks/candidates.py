"""A place where a form has begun, and how far it has been read."""

import re

from memrecall.text.leaks.automaton import State
from memrecall.text.leaks.formats import Kind, Place
from memrecall.text.leaks.json_calls import LONGEST_JSON, JsonReader, Names, Verdict
from memrecall.text.leaks.matchers import Form

LONGEST_FORM = 256  # characters within which a form must show what it is
_JSON_BEGIN = re.compile(r"[\[{]")
_FENCE_END = re.compile(r"\n[ \t]*```")
_BEHIND = re.compile(r"[`\s]*")


class Candidate:
    """Text from `start` on that may turn out to be a form."""

    __slots__ = ("_json", "_names", "_state", "form", "place", "reach", "start", "verdict")

    def __init__(self, start: int, place: Place, state: State[Form], names: Names | None) -> None:
        self.start = start
        self.place = place
        self.reach = start
        """How far the text was read: behind the form, if it is one."""
        self.form: Form | None = None
        """The form that it is."""
        self.verdict = Verdict.OPEN
        self._state = state
        self._names = names  # of the tools; none where no JSON is to be read
        self._json: JsonReader | None = None

    @property
    def was_json(self) -> bool:
        """Whether it was read as JSON."""
        return self._json is not None

    def read(self, text: str, last: bool) -> Verdict:
        """Read on to the end of the text; `last`: nothing will follow."""
        if self.verdict is Verdict.OPEN:
            self.verdict = self._read(text, last)
        return self.verdict

    def _read(self, text: str, last: bool) -> Verdict:
        if self._json is not None:
            return self._read_json(self._json, text, last)
        state, reach, limit = self._state, self.reach, self.start + LONGEST_FORM
        for char in text[reach:limit]:
            state = state[char]
            reach += 1
            if state.over:
                break
        self._state, self.reach = state, reach
        if not state.over:
            return self._weigh_cut(state.cut, reach >= limit, last)
        self.form = state.done
        if state.done is None:
            return Verdict.NO
        if state.done.row.kind is not Kind.JSON:
            return Verdict.YES
        return self._begin_json(text, last)

    def move(self, by: int) -> None:
        """Follow a text whose beginning was cut off."""
        self.start -= by
        self.reach -= by

    def _weigh_cut(self, cut: Form | None, too_long: bool, last: bool) -> Verdict:
        """Tell about a form that is not complete."""
        self.form = cut
        if not too_long and not last:
            return Verdict.OPEN
        if cut is None or (too_long and not cut.row.may_be_long):
            return Verdict.NO
        return Verdict.YES

    def _begin_json(self, text: str, last: bool) -> Verdict:
        begin = _JSON_BEGIN.search(text, self.start)
        if self._names is None or begin is None:
            return Verdict.NO
        self.reach = begin.start()
        self._json = JsonReader(self._names, whole=self.place is Place.START)
        return self._read_json(self._json, text, last)

    def _read_json(self, reader: JsonReader, text: str, last: bool) -> Verdict:
        limit = self.start + LONGEST_JSON
        self.reach = reader.read(text, self.reach, min(len(text), limit))
        if reader.verdict is Verdict.YES and self._is_fenced(text):
            return self._read_fence(text, last)
        if reader.verdict is not Verdict.OPEN:
            return reader.verdict
        if last and reader.cut_off:
            return Verdict.YES
        return Verdict.NO if last or self.reach >= limit else Verdict.OPEN

    def _is_fenced(self, text: str) -> bool:
        return text[self.start] == "`"

    def _read_fence(self, text: str, last: bool) -> Verdict:
        """Tell whether nothing but fences follows: with prose behind it, it is an example."""
        limit = self.start + LONGEST_JSON
        while end := _FENCE_END.search(text, self.reach, limit):
            behind = _BEHIND.match(text, end.end(), limit)
            at = behind.end() if behind else end.end()
            if at == len(text) or at == limit:
                break
            if "`" not in text[end.end() : at].lstrip("`"):
                return Verdict.NO
            self.reach = at
        return Verdict.YES if last or len(text) >= limit else Verdict.OPEN
