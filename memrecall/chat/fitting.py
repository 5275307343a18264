"""Texts that share a room: short ones whole, long ones cut alike."""

from collections.abc import Sequence

CUT = "…"  # at the end of what was cut


def fit_texts(texts: Sequence[str], room: int, shortest: int) -> list[str]:
    """The texts, the long ones cut so that all together have about so many characters.

    What the short ones leave free is the long ones' to share. None is cut below `shortest`.
    """
    share = max(_share([len(text) for text in texts], room), shortest)
    return [cut_text(text, share) for text in texts]


def cut_text(text: str, longest: int) -> str:
    """A text, or as much of its beginning."""
    return text if len(text) <= longest else f"{text[:longest]}{CUT}"


def _share(lengths: Sequence[int], room: int) -> int:
    """The most that each may have, so that all together keep to the room."""
    left = room
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)
