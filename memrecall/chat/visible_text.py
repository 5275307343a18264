"""What the reader is shown of a turn: the model's words, without calls written as text."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from memrecall.chat.events import LeakTold
from memrecall.text.leaks import LeakFilter

SILENCE = "[pass]"  # how a member of a group says nothing
_WORD = "pass"
_LONGEST_SIGN = 16  # characters of an answer that is the word alone, whatever stands around it
_AROUND = r"[*_`【\[「<(]{0,3}"
_BEHIND = r"[*_`】\]」>)]{0,3}"
_NO_WORD_YET = re.compile(rf"{_BEHIND}\s?(?:[:：]{_BEHIND}\s*)?")  # behind a name
_SIGN = re.compile(r"[*_`\"“]{0,3}[\[【［]\s?pass\s?[\]】］]", re.IGNORECASE)
_AFTER_SIGN = ' \t\n*_`"”.。!！,，;；:：—-'


class OpeningVerdict(Enum):
    """What the beginning of an answer is."""

    OPEN = auto()  # it may still become a name or a silence
    SILENT = auto()
    SPOKEN = auto()


@dataclass(frozen=True, slots=True)
class Opened:
    """The beginning of an answer, read: `text` is what is left of it to be shown."""

    verdict: OpeningVerdict
    text: str = ""


class Opening:
    """Reads the beginnings of one member's answers.

    Whatever the pieces that an answer comes in, the same is left of it. A member that `may_pass`
    is silent with any answer that begins with the sign, or is its bare word; for one that must
    speak only the sign itself is dropped.
    """

    def __init__(self, names: Sequence[str], *, may_pass: bool) -> None:
        self._may_pass = may_pass
        self._names = [name.casefold() for name in names if name]
        named = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._own_name = re.compile(
            rf"{_AROUND}(?:{named}){_BEHIND}\s?[:：]{_BEHIND}\s*", re.IGNORECASE
        )

    def read(self, text: str, *, last: bool) -> Opened:
        """Judge what there is of an answer; with `last` there will be no more."""
        if self._may_become_name(text) and not last:
            return Opened(OpeningVerdict.OPEN)
        if found := self._own_name.match(text):
            text = text[found.end() :]
        if sign := _SIGN.match(text):
            return self._read_signed(text[sign.end() :], last)
        if len(text.rstrip()) <= _LONGEST_SIGN:
            bare = re.sub(r"[\W_]+", "", text).lower()
            if last and self._may_pass and bare == _WORD:
                return Opened(OpeningVerdict.SILENT)
            if not last and _WORD.startswith(bare):
                return Opened(OpeningVerdict.OPEN)
        return Opened(OpeningVerdict.SPOKEN, text)

    def _read_signed(self, rest: str, last: bool) -> Opened:
        rest = rest.lstrip(_AFTER_SIGN)
        if self._may_pass or (last and not rest):
            return Opened(OpeningVerdict.SILENT)
        return Opened(OpeningVerdict.SPOKEN, rest) if rest else Opened(OpeningVerdict.OPEN)

    def _may_become_name(self, text: str) -> bool:
        """Whether more of the text could make it a name and a colon."""
        around = re.match(_AROUND, text)
        most = around.end() if around else 0
        return any(self._may_name(text[start:].casefold()) for start in range(most + 1))

    def _may_name(self, begun: str) -> bool:
        for name in self._names:
            if name.startswith(begun):
                return True
            if begun.startswith(name) and _NO_WORD_YET.fullmatch(begun, len(name)):
                return True
        return False


_log = logging.getLogger(__name__)

BREAK = "\n\n"  # between the words of two answers


class Speech:
    """The text of one turn, over all answers of its model; what was shown is never taken back.

    Each answer goes through a filter of its own. Space around an answer is dropped. In a group an
    `opening` takes the member's own name off, and knows silence. `on_leak` is told the family of
    each leak as soon as its answer is over, however that ends.
    """

    def __init__(
        self,
        tool_names: Sequence[str],
        model: str,
        *,
        opening: Opening | None = None,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self._tools = tuple(tool_names)
        self._model = model
        self._opening = opening
        self._on_leak = on_leak
        self._is_over = True  # no answer is under way
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
        self._is_over = False

    def feed(self, chunk: str) -> str:
        """Take a piece of the answer; what the reader may see of it now."""
        return self._show(self._filter.feed(_storable(chunk)))

    def end(self) -> str:
        """The answer is over; what was held back of it."""
        self._is_over = True
        shown = self._show(self._filter.close(), last=True)
        self._tell_leaks()
        return shown

    def break_off(self) -> None:
        """The answer will not go on: of what was held back nothing is shown."""
        if not self._is_over:
            self._is_over = True
            self._filter.close()
            self._tell_leaks()

    def _tell_leaks(self) -> None:
        for leak in self._filter.leaks:
            name = leak.name if leak.name in self._tools else "a tool"
            _log.error(
                "%s wrote a call of %s as text (%s); it was not run", self._model, name, leak.family
            )
            self.leaks.append(LeakTold(leak.family, leak.name))
            self.leaked = True
            if self._on_leak is not None:
                self._on_leak(leak.family)

    def add(self, text: str) -> str:
        """Say something in the code's own words."""
        self.begin()
        return self._show(text, last=True)

    def _show(self, visible: str, *, last: bool = False) -> str:
        """Show what is new, but hold back the space at its end, and what may be no speech."""
        if self.passed:
            return ""
        text = self._held + visible
        if not self._begun:
            text = self._open(text.lstrip(), last)
        shown = text.rstrip()
        if not self._begun and not shown:
            return ""
        self._held = text[len(shown) :]
        if not shown:
            return ""
        if not self._begun and self.text:
            shown = BREAK + shown
        self._begun = True
        self.text += shown
        return shown

    def _open(self, text: str, last: bool) -> str:
        """What may be shown of an answer that nothing was shown of yet."""
        self._held = text
        if self._opening is None or not text:
            return text
        opened = self._opening.read(text, last=last)
        self.passed = opened.verdict is OpeningVerdict.SILENT
        return opened.text.lstrip()


def _storable(chunk: str) -> str:
    """A piece without what no database can keep: NUL, and halves of surrogate pairs."""
    return chunk.replace("\0", "").encode("utf-8", "ignore").decode()
