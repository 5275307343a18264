"""Where a passage may begin and end: between words and after punctuation, in both languages."""

import unicodedata

from memrecall.text.normalize import normalize_with_offsets
from memrecall.text.tokens import is_cjk

# How far from its ideal place a cut may be and still count as near.
_NEIGHBOURHOOD = 80

_ENDS = frozenset("。！？；：，、…\n")
_LATIN_ENDS = frozenset(".!?;:,")
_OPENING = frozenset("（「『《〈【〔“‘([{<")
_CLOSING = frozenset("）」』》〉】〕”。！？；：，、…)]}>.!?;:,%")
_AFTER_WHICH_PATHS_BREAK = frozenset("/\\&?=_@|;")
_IN_LATIN_WORDS = frozenset("’‐‑")
_JOINER = "\u200d"  # makes one emoji of several
_FLAG_LETTERS = "\U0001f1e6\U0001f1ff"
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def best_cut(content: str, places: range, otherwise: int) -> int:
    """The place with the best grade, of equals the first; `otherwise` if none is good."""
    edges = _word_edges(content, places[:_NEIGHBOURHOOD])
    near = min(len(places), _NEIGHBOURHOOD) // 2
    best, best_grade = otherwise, 0
    for distance, at in enumerate(places):
        if best_grade == 3 or (best_grade == 2 and distance > near):
            break  # farther punctuation would cost more text than it is worth
        if (grade := _grade_cut(content, at, edges)) > best_grade:
            best, best_grade = at, grade
    return best


def _word_edges(content: str, places: range) -> frozenset[int]:
    """Where Chinese words begin around the places."""
    low, high = max(min(places, default=0) - 16, 0), max(places, default=0) + 16
    text = content[low:high]
    if not places or not any(map(is_cjk, text)):
        return frozenset()
    plain, offsets = normalize_with_offsets(text)
    from rjieba import tokenize  # loading its dictionary takes a moment

    return frozenset(low + start for _, start, _ in tokenize(plain if offsets is None else text))


def _grade_cut(content: str, at: int, edges: frozenset[int]) -> int:
    """How good it is to cut here: 0 never, 1 in a path, 2 between words, 3 after punctuation."""
    before, after = content[at - 1], content[at]
    if is_glued(before, after) or before in _OPENING or after in _CLOSING:
        return 0
    if before in _ENDS or (before in _LATIN_ENDS and after.isspace()):
        return 3
    if is_cjk(before) and is_cjk(after):
        return 2 if at in edges else 0
    if _is_latin(before) and _is_latin(after):
        return 1 if before in _AFTER_WHICH_PATHS_BREAK else 0
    return 2


def _is_latin(char: str) -> bool:
    """Whether the character is part of what spaces separate: words, numbers, their signs."""
    if char.isascii() or char in _IN_LATIN_WORDS:
        return not char.isspace()
    return (char.isalnum() and not is_cjk(char)) or is_extension(char)


def is_glued(before: str, after: str) -> bool:
    """Whether two characters are drawn as one: accents, emoji sequences, flags."""
    flag = _FLAG_LETTERS[0] <= min(before, after) and max(before, after) <= _FLAG_LETTERS[1]
    return flag or is_extension(after) or before == _JOINER


def is_extension(char: str) -> bool:
    """Whether the character is drawn on the one before it."""
    return char == _JOINER or char in _SKIN_TONES or unicodedata.category(char).startswith("M")
