"""What a filter tells: the calls that it hid."""

from dataclasses import dataclass, field
from typing import NamedTuple

from memrecall.text.leaks.names import find_names

LONGEST_KEPT = 65_536  # characters of a hidden text in which the names of tools are looked for


@dataclass(frozen=True, slots=True)
class Leak:
    """A call that was written as text: its form, where it is, and the tool, if it is named.

    The position in the text is that of the call's first character; of further calls in the same
    block it is where they are named.
    """

    family: str
    position: int
    name: str | None = None


class Filtered(NamedTuple):
    """What a reader may see of a text, and the calls that were in it."""

    visible: str
    leaks: list[Leak]


@dataclass(slots=True)
class Hidden:
    """A text that was hidden from a call on."""

    family: str
    position: int
    tools: tuple[str, ...]  # the registered ones
    _pieces: list[str] = field(default_factory=list)
    _left: int = LONGEST_KEPT

    def keep(self, text: str) -> None:
        """Note what was hidden, as far as names are looked for in it."""
        if self._left and text:
            self._pieces.append(text[: self._left])
            self._left -= len(self._pieces[-1])

    def leaks(self) -> list[Leak]:
        """The calls in it: one at least, at its beginning."""
        found = find_names("".join(self._pieces), self.tools)
        more = [Leak(self.family, self.position + at, name) for at, name in found[1:]]
        return [Leak(self.family, self.position, found[0][1] if found else None), *more]
