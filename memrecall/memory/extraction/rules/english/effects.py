"""What something does to the speaker: "Shellfish makes me break out", "horror films scare me"."""

import re

from memrecall.memory.extraction.facts import MemoryType

_WHAT = (
    r"(?P<what>(?!(?:i|we|you|he|she|it|they|this|that|which|what|who|my|your|the "
    r"idea)\b)[\w' -]{3,40}?)"
)
_ILL = re.compile(
    rf"{_WHAT} (?:always |often |sometimes |usually |really )?(?:makes?|gives?|leaves?) "
    rf"me .*\b(?:sick|hives|rash|headaches?|migraines?|cramps?|bloated"
    r"|nauseous|itch\w*|swell|break out|dizzy|heartburn|stomach\w*|sneez\w+|diarrh\w+"
    r"|breathless|throat|anxious|sleepy)\b.*",
    re.IGNORECASE,
)
_DISLIKED = re.compile(
    rf"{_WHAT} (?:always |really )?(?:freaks? me out|scares? me|terrif(?:y|ies) me|bores? "
    rf"me|annoys? me|drives? me (?:crazy|mad|nuts)"
    r"|grosses? me out|stresses? me out)\b.*",
    re.IGNORECASE,
)
_LIKED = re.compile(
    rf"{_WHAT} (?:always |really )?(?:cheers? me up|relaxes? me|calms? me(?: down)?"
    rf"|makes? me (?:happy|smile))\b.*",
    re.IGNORECASE,
)


def read_effect(text: str) -> tuple[MemoryType, str] | None:
    """The type and slot of a sentence of this kind; None if it is none."""
    if _ILL.fullmatch(text):
        return "user_profile", "health"
    if _DISLIKED.fullmatch(text) or _LIKED.fullmatch(text):
        return "user_preference", "likes"
    return None
