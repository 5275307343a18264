"""The part of a text that is in work: read or not, shown or not."""

from memrecall.text.leaks.automaton import SENTENCE_ENDS
from memrecall.text.leaks.formats import Place


def _goes_on(char: str) -> bool:
    """Whether a Latin word may go on behind a character."""
    return char.isascii() and (char.isalnum() or char == "_")


class Window:
    """The end of the text so far. What lies before it is done with."""

    __slots__ = ("_pieces", "_shown", "at", "base", "before", "earlier", "last", "text")

    def __init__(self) -> None:
        self.text = ""
        self.base = 0
        """Where the window stands in the whole text."""
        self.at = 0
        """How far the text is understood."""
        self.last = False
        """Whether nothing will follow."""
        self._shown = 0
        self.before = ""
        """What was before the window, or the end of it."""
        self.earlier = ""
        """What was before that: each is empty only if nothing was there."""
        self._pieces: list[str] = []

    def pass_over(self, text: str, to: int) -> str:
        """Show a text up to a place and keep the rest: all that the window held, and more."""
        shown = text[:to]
        self.text = text[to:]
        self.base += to
        self.earlier, self.before = self.before, shown
        return shown

    def show(self, to: int) -> None:
        """Let the reader see the text up to a place."""
        if to > self._shown:
            self._pieces.append(self.text[self._shown : to])
            self._shown = to

    def skip(self, to: int) -> str:
        """Understand the text up to a place, and hide what was not shown of it."""
        hidden = self.text[self._shown : to]
        self.at = self._shown = max(self._shown, to)
        return hidden

    def rewind(self) -> None:
        """Go back behind the first character that is held: it was not what it seemed."""
        self.at = self._shown + 1

    @property
    def held(self) -> str:
        """What was neither shown nor hidden."""
        return self.text[self._shown :]

    def place_at(self, at: int) -> Place:
        """What a place inside a line is."""
        before = self.look_back(at)
        if before and _goes_on(before[-1]):
            return Place.ANYWHERE
        end = before.removesuffix(" ")[-1:]
        return Place.SENTENCE if end and end in SENTENCE_ENDS else Place.WORD

    def look_back(self, at: int) -> str:
        """The two characters before a place, or those that there are."""
        if at > 1:
            return self.text[at - 2 : at]
        return (self.earlier[-1:] + self.before[-2:] + self.text[:at])[-2:]

    def take_pieces(self) -> str:
        """What became visible since the last time."""
        taken = "".join(self._pieces)
        self._pieces.clear()
        return taken

    def trim(self) -> int:
        """Forget what is understood and shown; by how much the window moved."""
        cut = min(self.at, self._shown)
        if cut:
            self.earlier, self.before = self.before, self.text[:cut][-2:]
            self.text = self.text[cut:]
            self.base += cut
            self.at -= cut
            self._shown -= cut
        return cut
