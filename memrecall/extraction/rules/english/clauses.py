"""English sentences as clauses, each with its subject and its predicate."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from memrecall.extraction.rules.english.kinship import KIN_WORD, MANY, PET_WORD
from memrecall.extraction.rules.english.plans import APPOINTMENT
from memrecall.extraction.rules.english.verbs import FORMS
from memrecall.extraction.rules.frames import words

SubjectKind = Literal["self", "kin", "named", "thing", "it"]

_MARKERS = re.compile(
    r"(?:(?:well|so|oh|ah|hey|hi|hello|yes|yeah|yep|yup|no|nope|ok|okay|sure|right|actually|anyway"
    r"|also|plus|btw|by the way|fyi|just fyi|for the record|just so you know|to be honest|tbh"
    r"|honestly|frankly|basically|as (?:i|you) (?:said|mentioned|know)|note that|please note"
    r"|one more thing|another thing|oops|wait|hmm+|haha+|lol|thanks|thank you|great|cool|nice|wow"
    r"|sorry|i (?:should|have to|must) (?:mention|say|add|admit|confess)(?: that)?|good news"
    r"|guess what|you know|first of all|in fact|in general|unfortunately|sadly|luckily|fortunately"
    r"|of course|obviously|clearly|importantly|please|good (?:morning|evening|afternoon)"
    r"|hi (?:there|all|everyone|team)|quick (?:note|update|intro)"
    r"|(?:a (?:bit|little) )?about me|update|correction|also|and"
    r"|but|for (?:context"
    r"|reference|background)|the thing is|it turns out|turns out|i (?:just )?(?:think|guess|believe"
    r"|mean|suppose|found out|realized|realised)(?: that)?(?= (?:I|we|my|our)\b)"
    r"|(?:i|I) (?:just )?(?:wanted|want) to (?:say|mention|add|tell you|let you know)(?: that)?"
    r"|(?:just )?(?:letting|to let) you know(?: that)?|for your information)"
    r"(?:\s*[,:;.!…–—-]+\s*|\s+(?=\w)|$))+",
    re.IGNORECASE,
)
_FORM = "|".join(sorted(FORMS, key=len, reverse=True))
_AUX = (
    r"am|is|are|was|were|will|can|cannot|could|would|should|must|might|may|do not|does not|did not"
)
_NEW_SUBJECT = (
    r"(?:I|[Ww]e|[Mm]y|[Oo]ur|[Hh]e|[Ss]he|[Tt]hey|it|the|his|her|their|there)\b"
    r"|(?:what|when|where|who|which|why|how) (?:is|are|do|does|did|can|could|should|would"
    r"|will|to|about)\b"
    r"|(?:can|could|would|will|should|do|does|did|is|are) (?:you|I|we|it|there)\b"
    r"|[A-Z][a-z]+(?: [A-Z][a-z]+)? (?:is|has|lives|works|loves|likes|hates|wants|was|will)\b"
)
_VERB_NEXT = (
    rf"(?:(?:also|now|currently|recently|just|still|really|never|always|usually|have|had|{_AUX}) )*"
    rf"(?:{_FORM}|{_AUX}|no longer|used to)\b(?! (?:and|or)\b)"
)
_SPLIT = re.compile(
    r"\s*(?:[,;]|—|\s[-–]{1,2}\s|\s\()\s*(?:(?:and|but|so|plus|also|yet|or|because|who"
    r"|which) )?(?:then )?"
    rf"(?={_NEW_SUBJECT}|{_VERB_NEXT})"
    r"|\s+(?:and|but|so|because|although|though|whereas|plus)\s+(?:also |then |now )?"
    rf"(?={_NEW_SUBJECT})"
    rf"|\s+(?:and|but)\s+(?:also |then |now )?(?={_VERB_NEXT})"
    r"|\s+(?=\band (?:I|my|we|our)\b)"
)

_VERBS_S = "|".join(
    sorted(
        (form for form, (_, kind) in FORMS.items() if kind in ("s", "past")), key=len, reverse=True
    )
)
_FINITE = rf"(?:{_AUX}|has|have|had|does|did|used to|{_VERBS_S}|[a-z]{{3,}}ed)"
_ADVERB = (
    r"(?:(?:also|still|just|always|usually|often|never|really|now|currently|recently|both|\w+ly) )*"
)
_LEADING = (
    r"(?P<lead>(?i:(?:at|in|on|by|since|from|until|after|before|during|over|for|every|ever since"
    r"|each|next|last"
    r"|this|these|those|nowadays|currently|today|tomorrow|yesterday|tonight|now|usually|normally"
    r"|typically|generally|sometimes|lately|recently|previously|formerly|starting|most|most of"
    r"|two|three|a few|a couple|back)\b[^,]{0,40}?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days|once|soon|originally|\d[\w ]{0,20}ago),? )??"
)
_SELF = re.compile(rf"{_LEADING}(?:I|[Ww]e|User) (?P<said>.+)")
_NAME = r"[A-Z][\w'’.-]+(?: (?:van |de |von |al-)?[A-Z][\w'’-]+){0,2}"
_OUR = r"(?:[Mm]y|[Oo]ur|[Tt]he(?= (?:kids|twins|baby)\b))"
_KIN = re.compile(
    rf"{_LEADING}(?:[Bb]oth )?{_OUR} (?P<former>late |ex-|former )?"
    rf"(?P<adjective>(?:[a-z]+(?:-[a-z]+)* ){{0,3}}?)"
    rf"(?P<noun>{KIN_WORD}|{PET_WORD})\b(?P<gap>,? (?P<name>{_NAME}),?| (?=\w))?"
    rf" ?,? ?(?P<said>{_ADVERB}{_FINITE}\b.*)"
)
_BASE = "|".join(
    sorted((form for form, (_, kind) in FORMS.items() if kind == "base"), key=len, reverse=True)
)
_MANY_KIN = re.compile(
    rf"{_LEADING}(?:[Bb]oth )?{_OUR} (?P<former>late |former )?"
    rf"(?P<adjective>(?:[a-z]+(?:-[a-z]+)* ){{0,3}}?)"
    rf"(?P<noun>{'|'.join(sorted(MANY, key=len, reverse=True))})\b(?P<name>)"
    rf" (?P<said>{_ADVERB}(?:do not )?(?:{_BASE})\b.*)"
)
_OWNED = re.compile(
    rf"{_LEADING}(?P<whose>[Mm]y|[Oo]ur|[Tt]he|[Uu]ser's) (?P<noun>[^,.;:]{{2,60}}?) "
    rf"(?P<said>{_ADVERB}{_FINITE}\b.*)"
)
# "Dinner with Sofia is at 7" needs no article.
_APPOINTED = re.compile(
    rf"{_LEADING}(?P<whose>)(?P<noun>(?:[A-Z]\w+ )?(?i:{APPOINTMENT}) "
    rf"(?:with|at|for) [^,.;:]{{2,40}}?) (?P<said>(?:is|was|got|has been|will be)\b.*)"
)
_SYSTEM = re.compile(
    r"(?P<lead>)(?P<whose>)(?P<noun>[Pp]rod(?:uction)?|[Ss]taging|CI|[Dd]ev|[Bb]ackend|[Ff]rontend)"
    r" (?P<said>(?:is|runs|lives|listens|uses|sits|deploys)\b.*)"
)
_NAMED = re.compile(rf"{_LEADING}@?(?P<name>{_NAME}),? (?P<said>{_ADVERB}{_FINITE}\b.*)")
_PRONOUN = re.compile(rf"{_LEADING}(?P<word>[Hh]e|[Ss]he|[Ii]t) (?P<said>.+)")
# Words that begin sentences with a capital and name nobody.
_NOT_NAMES = words(
    """
    The This That These Those There Here What When Where Who Why How Which If And But Or So
    Then Now Today Tomorrow Yesterday Monday Tuesday Wednesday Thursday Friday Saturday
    Sunday January February March April May June July August September October November
    December Everyone Everybody Someone Somebody Nobody Anyone People Nothing Something
    Everything All Some Most Many One Two Three He She It They We You I My Our Your His Her
    Their Also Just Please Thanks Hello Hi Hey Yes No Ok Okay Sure Maybe Perhaps Christmas
    Easter English French German Spanish Chinese Let Do Does Did Is Are Was Can Could Would
    Should Will Not Never Always Work Life Dinner Lunch Breakfast Anything
    """
)


@dataclass(frozen=True, slots=True)
class Clause:
    """Who or what a clause is about, and what it says of it.

    `lead` is a time or place that stood before the subject; `noun` is what belongs to the speaker
    (my sister, our database), `name` a person's name.
    """

    kind: SubjectKind
    said: str
    lead: str = ""
    noun: str = ""
    name: str = ""
    whose: str = ""
    elided: bool = False


def strip_markers(text: str) -> str:
    """The text without the words that only open it: "well,", "by the way,", "I think"."""
    match = _MARKERS.match(text)
    return text[match.end() :] if match else text


# What only goes along with a statement.
_TAIL = re.compile(
    r"(?:,| -)? (?:but|though|although|even (?:though|if|when)|either|such as|especially"
    r"|which|while|whereas|now that|so that|except"
    r"|however|otherwise|unless|so (?:no|nothing|please|not|any|maybe))\b.*$"
)
_FILLER = re.compile(
    r"(?:[ ,]+(?:btw|by the way|though|lol|haha+|fyi|please|thanks|thank you|you know"
    r"|just so you know|obviously"
    r"|unfortunately|sadly|luckily|actually|ugh|yay))+$",
    re.IGNORECASE,
)


def split_clauses(text: str) -> Iterator[str]:
    """The clauses of a sentence."""
    for piece in _SPLIT.split(text):
        bare = _FILLER.sub("", strip_markers(piece.strip(" ,;:-–—()")))
        bare = _TAIL.sub("", bare)
        if bare:
            yield bare


def read_clause(text: str) -> Clause | None:
    """The clause with its subject; None if it has none that can be told."""
    if match := _SELF.fullmatch(text):
        return Clause("self", match["said"], _lead(match))
    if match := _KIN.fullmatch(text) or _MANY_KIN.fullmatch(text):
        noun = "".join(match[part] or "" for part in ("former", "adjective", "noun")).strip()
        return Clause("kin", match["said"], _lead(match), noun, match["name"] or "", "my")
    if match := _PRONOUN.fullmatch(text):
        kind: SubjectKind = "it" if match["word"].lower() == "it" else "named"
        return Clause(kind, match["said"], _lead(match), name="")
    if match := _OWNED.fullmatch(text) or _APPOINTED.fullmatch(text) or _SYSTEM.fullmatch(text):
        return Clause(
            "thing", match["said"], _lead(match), match["noun"], "", match["whose"].lower()
        )
    if (match := _NAMED.fullmatch(text)) and match["name"].split()[0] not in _NOT_NAMES:
        return Clause("named", match["said"], _lead(match), name=match["name"].rstrip("."))
    return None


def _lead(match: re.Match[str]) -> str:
    return (match["lead"] or "").strip(" ,")
