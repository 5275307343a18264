"""What something does to the speaker: "Shellfish makes me break out", "horror films scare me"."""

import re

from memrecall.extraction.protocol import MemoryType

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
_DISAGREES = re.compile(
    rf"{_WHAT} (?:(?:does|do) not agree with me|disagrees? with me|upsets? my stomach"
    r"|(?:keeps?|kept) me (?:up|awake)(?: (?:all|at) night)?)\b.*",
    re.IGNORECASE,
)
_TREATED = re.compile(
    r"(?:my|the|our) (?:doctor|gp|psychiatrist|cardiologist|dermatologist|neurologist|physician"
    r"|therapist|dentist) (?:just |recently )?(?:put me (?:back )?on|prescribed(?: me)?"
    r"|diagnosed me with|switched me to|took me off|started me on) (?!it\b|that\b|this\b)\S.*",
    re.IGNORECASE,
)
_FAVOURED = re.compile(
    rf"{_WHAT} (?:is|are) (?:definitely |easily |by far |still |probably )*my (?:(?:all-time "
    r"|absolute |new )?favou?rite\b.*|(?:biggest |main |great |true )?(?:passion|hobby"
    r"|weakness|obsession)"
    r"|thing|jam|go-to(?: \w+)*|comfort food|guilty pleasure|cup of tea)",
    re.IGNORECASE,
)
_TIMED = re.compile(
    r"(?P<what>(?:mon|tues|wednes|thurs|fri|satur|sun)days|mornings|evenings|afternoons|weekends"
    r"|weekdays|lunchtimes?) (?:(?:is|are) (?:always |usually |the )?(?:best|better|good|bad|tricky"
    r"|hard|difficult)|(?:do not |does not )?(?:work|works|suit|suits)"
    r"(?: (?:best|better|well))?) (?:for )?me\b.*",
    re.IGNORECASE,
)
_NOW = re.compile(r"\b(?:right now|tonight|today|at the moment)\b", re.IGNORECASE)
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
    if _NOW.search(text):
        return None
    if _ILL.fullmatch(text) or _DISAGREES.fullmatch(text) or _TREATED.fullmatch(text):
        return "user_profile", "health"
    if any(one.fullmatch(text) for one in (_DISLIKED, _LIKED, _FAVOURED)):
        return "user_preference", "likes"
    if _TIMED.fullmatch(text):
        return "user_preference", "schedule"
    return None
