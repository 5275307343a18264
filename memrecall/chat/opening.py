"""How an answer in a group may begin: with the member's own name, or with the sign of silence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

SILENCE = "[pass]"  # how a member of a group says nothing
_WORD = "pass"
_LONGEST_SIGN = 16  # characters of an answer that is the word alone, whatever stands around it
_AROUND = r"[*_`【\[「<(]{0,3}"
_BEHIND = r"[*_`】\]」>)]{0,3}"
_NO_WORD_YET = re.compile(rf"{_BEHIND}\s?(?:[:：]{_BEHIND}\s*)?")  # behind a name
_SIGN = re.compile(r"[*_`\"“]{0,3}[\[【［]\s?pass\s?[\]】］]", re.IGNORECASE)
_AFTER_SIGN = ' \t\n*_`"”.。!！,，;；:：—-'


class Verdict(Enum):
    """What the beginning of an answer is."""

    OPEN = auto()  # it may still become a name or a silence
    SILENT = auto()
    SPOKEN = auto()


@dataclass(frozen=True, slots=True)
class Opened:
    """The beginning of an answer, read: `text` is what is left of it to be shown."""

    verdict: Verdict
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
            return Opened(Verdict.OPEN)
        if found := self._own_name.match(text):
            text = text[found.end() :]
        if sign := _SIGN.match(text):
            return self._read_signed(text[sign.end() :], last)
        if len(text.rstrip()) <= _LONGEST_SIGN:
            bare = re.sub(r"[\W_]+", "", text).lower()
            if last and self._may_pass and bare == _WORD:
                return Opened(Verdict.SILENT)
            if not last and _WORD.startswith(bare):
                return Opened(Verdict.OPEN)
        return Opened(Verdict.SPOKEN, text)

    def _read_signed(self, rest: str, last: bool) -> Opened:
        rest = rest.lstrip(_AFTER_SIGN)
        if self._may_pass or (last and not rest):
            return Opened(Verdict.SILENT)
        return Opened(Verdict.SPOKEN, rest) if rest else Opened(Verdict.OPEN)

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
