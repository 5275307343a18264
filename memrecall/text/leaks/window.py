"""The part of a text that is in work: read or not, shown or not."""

from memrecall.text.leaks.automaton import SENTENCE_ENDS
from memrecall.text.leaks.formats import StartPosition


def _goes_on(char: str) -> bool:
    """Whether a Latin word may go on behind a character."""
    return char.isascii() and (char.isalnum() or char == "_")


class TextWindow:
    """The end of the text so far. What lies before it is done with."""

    __slots__ = ("_pieces", "at", "base", "before", "earlier", "last", "shown", "text")

    def __init__(self) -> None:
        self.text = ""
        self.base = 0
        """Where the window stands in the whole text."""
        self.at = 0
        """How far the text is understood."""
        self.last = False
        """Whether nothing will follow."""
        self.shown = 0
        """How far the reader sees it."""
        self.before = ""
        """What was before the window, or the end of it."""
        self.earlier = ""
        """What was before that: each is empty only if nothing was there."""
        self._pieces: list[str] = []

    def pass_over(self, text: str, to: int, shown: int) -> str:
        """Be done with a longer text up to a place, and show it up to another behind that."""
        visible = text[self.shown : shown]
        if to:
            self.earlier, self.before = self.before, text[:to][-2:]
            self.text = text[to:]
            self.base += to
        else:
            self.text = text
        self.shown = shown - to
        return visible

    def pass_all(self, text: str) -> str:
        """Be done with a longer text, and show all of it."""
        visible = text[self.shown :] if self.shown else text
        self.text = ""
        self.base += len(text)
        self.earlier, self.before = self.before, text
        self.shown = 0
        return visible

    def extend(self, text: str) -> str:
        """Take a longer text, show all of it, and understand no more of it than before."""
        visible = text[self.shown :]
        self.text = text
        self.shown = len(text)
        return visible

    def show(self, to: int) -> None:
        """Let the reader see the text up to a place."""
        if to > self.shown:
            self._pieces.append(self.text[self.shown : to])
            self.shown = to

    def skip(self, to: int) -> str:
        """Understand the text up to a place, and hide what was not shown of it."""
        hidden = self.text[self.shown : to]
        self.at = self.shown = max(self.shown, to)
        return hidden

    def rewind(self) -> None:
        """Go back behind the first character that is held: it was not what it seemed."""
        self.at = self.shown + 1

    @property
    def held(self) -> str:
        """What was neither shown nor hidden."""
        return self.text[self.shown :]

    def place_at(self, at: int) -> StartPosition:
        """What a place inside a line is."""
        before = self.look_back(at)
        if before and _goes_on(before[-1]):
            return StartPosition.ANYWHERE
        end = before.removesuffix(" ")[-1:]
        return StartPosition.SENTENCE if end and end in SENTENCE_ENDS else StartPosition.WORD

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
        cut = min(self.at, self.shown)
        if cut:
            self.earlier, self.before = self.before, self.text[:cut][-2:]
            self.text = self.text[cut:]
            self.base += cut
            self.at -= cut
            self.shown -= cut
        return cut
