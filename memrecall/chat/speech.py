"""What the reader is shown of a turn: the model's words, without calls written as text."""

import logging
from collections.abc import Sequence

from memrecall.chat.events import LeakTold
from memrecall.text.leaks import LeakFilter

_log = logging.getLogger(__name__)

SILENCE = "[pass]"  # how a member of a group says nothing
BREAK = "\n\n"  # between the words of two answers


class Speech:
    """The text of one turn, over all answers of its model; what was shown is never taken back.

    Each answer goes through a filter of its own. Space around an answer is dropped. An answer that
    is the word `SILENCE` and nothing else is silence, where that is allowed.
    """

    def __init__(self, tool_names: Sequence[str], model: str, *, knows_pass: bool = False) -> None:
        self._tools = tuple(tool_names)
        self._model = model
        self._knows_pass = knows_pass
        self._filter = LeakFilter(self._tools, reasoning="strip")
        self._held = ""
        self._begun = False  # something of this answer was shown
        self.text = ""
        self.leaks: list[LeakTold] = []
        self.leaked = False  # in this answer
        self.passed = False  # this answer is silence

    @property
    def spoke(self) -> bool:
        """Whether this answer showed anything."""
        return self._begun

    def begin(self) -> None:
        """A new answer of the model begins."""
        self._filter = LeakFilter(self._tools, reasoning="strip")
        self._held, self._begun, self.leaked, self.passed = "", False, False, False

    def feed(self, chunk: str) -> str:
        """Take a piece of the answer; what the reader may see of it now."""
        return self._show(self._filter.feed(_storable(chunk)))

    def end(self) -> str:
        """The answer is over; what was held back of it."""
        shown = self._show(self._filter.close(), last=True)
        for leak in self._filter.leaks:
            name = leak.name if leak.name in self._tools else "a tool"
            _log.error(
                "%s wrote a call of %s as text (%s); it was not run", self._model, name, leak.family
            )
            self.leaks.append(LeakTold(leak.family, leak.name))
            self.leaked = True
        return shown

    def add(self, text: str) -> str:
        """Say something in the code's own words."""
        self.begin()
        return self._show(text, last=True)

    def _show(self, visible: str, *, last: bool = False) -> str:
        """Show what is new, but hold back the space at its end, and what may be a silence."""
        text = self._held + visible
        if not self._begun:
            text = text.lstrip()
            if self._knows_pass and self._may_pass(text, last):
                return ""
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if not shown:
            return ""
        if not self._begun and self.text:
            shown = BREAK + shown
        self._begun = True
        self.text += shown
        return shown

    def _may_pass(self, text: str, last: bool) -> bool:
        said = text.strip().lower()
        if last:
            self.passed = said == SILENCE
            return self.passed
        self._held = text
        return SILENCE.startswith(said)


def _storable(chunk: str) -> str:
    """A piece without what no database can keep: NUL, and halves of surrogate pairs."""
    return chunk.replace("\0", "").encode("utf-8", "ignore").decode()
