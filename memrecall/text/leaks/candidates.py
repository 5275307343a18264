"""A place where a form has begun, and how far it has been read."""

import re

from memrecall.text.leaks.automaton import AutomatonState
from memrecall.text.leaks.formats import Kind, StartPosition
from memrecall.text.leaks.json_calls import LONGEST_JSON, CallVerdict, JsonReader, NamePrefixes
from memrecall.text.leaks.matchers import Form

LONGEST_FORM = 256  # characters within which a form must show what it is
_JSON_BEGIN = re.compile(r"[\[{]")
_FENCE_END = re.compile(r"\n[ \t]*```")
_BEHIND = re.compile(r"[`\s]*")


class LeakCandidate:
    """Text from `start` on that may turn out to be a form."""

    __slots__ = ("_json", "_names", "_state", "form", "place", "reach", "start", "verdict")

    def __init__(
        self,
        start: int,
        place: StartPosition,
        state: AutomatonState[Form],
        names: NamePrefixes | None,
    ) -> None:
        self.start = start
        self.place = place
        self.reach = start
        """How far the text was read: behind the form, if it is one."""
        self.form: Form | None = None
        """The form that it is."""
        self.verdict = CallVerdict.OPEN
        self._state = state
        self._names = names  # of the tools; none where no JSON is to be read
        self._json: JsonReader | None = None

    @property
    def was_json(self) -> bool:
        """Whether it was read as JSON."""
        return self._json is not None

    def read(self, text: str, last: bool) -> CallVerdict:
        """Read on to the end of the text; `last`: nothing will follow."""
        if self.verdict is CallVerdict.OPEN:
            self.verdict = self._read(text, last)
        return self.verdict

    def _read(self, text: str, last: bool) -> CallVerdict:
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
            return CallVerdict.NO
        if state.done.row.kind is not Kind.JSON:
            return CallVerdict.YES
        return self._begin_json(text, last)

    def move(self, by: int) -> None:
        """Follow a text whose beginning was cut off."""
        self.start -= by
        self.reach -= by

    def _weigh_cut(self, cut: Form | None, too_long: bool, last: bool) -> CallVerdict:
        """Tell about a form that is not complete."""
        self.form = cut
        if not too_long and not last:
            return CallVerdict.OPEN
        if cut is None or (too_long and not cut.row.may_be_long):
            return CallVerdict.NO
        return CallVerdict.YES

    def _begin_json(self, text: str, last: bool) -> CallVerdict:
        begin = _JSON_BEGIN.search(text, self.start)
        if self._names is None or begin is None:
            return CallVerdict.NO
        self.reach = begin.start()
        self._json = JsonReader(self._names, whole=self.place is StartPosition.START)
        return self._read_json(self._json, text, last)

    def _read_json(self, reader: JsonReader, text: str, last: bool) -> CallVerdict:
        limit = self.start + LONGEST_JSON
        self.reach = reader.read(text, self.reach, min(len(text), limit))
        if reader.verdict is CallVerdict.YES and self._is_fenced(text):
            return self._read_fence(text, last)
        if reader.verdict is not CallVerdict.OPEN:
            return reader.verdict
        if last and reader.cut_off:
            return CallVerdict.YES
        return CallVerdict.NO if last or self.reach >= limit else CallVerdict.OPEN

    def _is_fenced(self, text: str) -> bool:
        return text[self.start] == "`"

    def _read_fence(self, text: str, last: bool) -> CallVerdict:
        """Tell whether nothing but fences follows: with prose behind it, it is an example."""
        limit = self.start + LONGEST_JSON
        while end := _FENCE_END.search(text, self.reach, limit):
            behind = _BEHIND.match(text, end.end(), limit)
            at = behind.end() if behind else end.end()
            if at == len(text) or at == limit:
                break
            if "`" not in text[end.end() : at].lstrip("`"):
                return CallVerdict.NO
            self.reach = at
        return CallVerdict.YES if last or len(text) >= limit else CallVerdict.OPEN
