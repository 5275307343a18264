"""What belongs to somebody and is told with "is": my email, our staging server, my flight."""

import re
from dataclasses import replace

from memrecall.extraction.protocol import MemoryType
from memrecall.extraction.rules.dating import Moment, has_time, is_ahead
from memrecall.extraction.rules.english.clauses import Clause
from memrecall.extraction.rules.english.grammar import Predicate
from memrecall.extraction.rules.english.kinship import KIN_WORD, PET_WORD
from memrecall.extraction.rules.english.plans import (
    APPOINTMENT,
    CANCELLED,
    EVENTS,
    SCHEDULED,
)
from memrecall.extraction.rules.english.table import frame
from memrecall.extraction.rules.english.tools import TOOLS
from memrecall.extraction.rules.frames import ANY, NOW_OR_BEFORE, Frame, Told

# Nouns of a profile's slots, by the slot that they fill.
_SLOTS = {
    "name": "name, full name, first name, real name",
    "surname": "surname, last name, family name",
    "nickname": "nickname, friends call me",
    "birthday": "birthday, date of birth, birth date, birthdate, bday",
    "email": "email, e-mail, email address, mail",
    "phone": "phone, phone number, number, mobile, mobile number, cell",
    "address": "address, home address, postcode, zip code",
    "job": "job, profession, occupation, role, title, job title, position",
    "employer": "company, employer, workplace",
    "origin": "hometown, home town, birthplace, home country",
    "home": "city, home",
    "height": "height",
    "weight": "weight",
    "age": "age",
    "major": "major, degree, field, field of study, specialty, subject",
    "school": "school, university, college, alma mater",
    "language": "native language, mother tongue, first language, second language",
    "nationality": "nationality, citizenship",
    "religion": "religion, faith",
    "zodiac": "star sign, zodiac sign, zodiac, sign",
    "blood_type": "blood type, blood group",
    "shoe_size": "shoe size",
    "size": "size, shirt size, clothing size, ring size",
    "time_zone": "time zone, timezone",
    "hobby": "hobby, hobbies, passion, passions, pastime",
    "budget": "budget",
    "goal": "goal, goals, dream, ambition, resolution, new year's resolution",
    "pronouns": "pronouns, preferred pronouns",
    "username": "username, handle, github, login, user name",
    "anniversary": "anniversary, wedding anniversary",
    "diet": "diet",
}
SLOT_OF = {noun.strip(): slot for slot, nouns in _SLOTS.items() for noun in nouns.split(",")}
FAVOURITE = re.compile(
    r"(?:all-time |absolute )?favou?rite (?P<what>.+)|(?P<kind>.+) of choice|go-to (?P<usual>.+)",
    re.IGNORECASE,
)
APPOINTED = re.compile(
    rf"(?:.* )?{APPOINTMENT}(?: (?:with|at|in|to|for|on|of|from) .+)?", re.IGNORECASE
)
# What names a setting: a path, an address, a version, an identifier, a number with a unit.
TECHNICAL = re.compile(
    r"`[^`]+`|\b[a-z]+\d\w*\b|[\w.-]*/[\w./-]+|\b\w+[._-]\w+\b|\b\d[\d.:]*\b"
    r"|\b[A-Z][A-Z0-9_]{2,}\b|\b[a-z]+[A-Z]\w*"
    rf"|\b(?i:{TOOLS})\b"
)
SYSTEMS = re.compile(
    r"\b(?:database|db|server|api|port|host|repo|repository|branch|project|app|backend"
    r"|frontend|cluster|service"
    r"|endpoint|key|password|token|config|configuration|setting|version|timeout|pool"
    r"|queue|bucket|domain|url"
    r"|command|script|env|environment|variable|container|image|pipeline|ci|cd|deployment"
    r"|build|cache|schema|table"
    r"|staging|production|prod|laptop|machine|os|shell|editor|ide|stack|codebase|router"
    r"|wifi|wi-fi|network|ip"
    r"|printer|nas|code|door code|pin|license|licence|folder|directory|path|file|default"
    r"|limit|package manager"
    r"|test suite|linter|formatter|style guide|proxy|vpn|backup|cron|job id|registry"
    r"|namespace|region|vm)\b",
    re.IGNORECASE,
)

IS = frame(
    r"(?:(?:be|become)(?: (?:now|currently|actually|still))?|(?:be |get )?(?:change|changed"
    r"|updated|switched) to) (?P<value>.+)",
    "user_profile",
    tenses=ANY,
)
SET_UP = frame(
    r"(?:be (?:set to|stored in|hosted (?:on|at|in)|running (?:on|in)?|located (?:at|in)"
    r"|at|on|in|under|called"
    r"|named|written in|deployed (?:to|on|with)|pinned to)?|run(?: on| in| at| with)?"
    r"|listen on|use|live (?:in|at|under"
    r"|on)|sit (?:in|at)|point (?:to|at)|require|need|take|change to|switch to|depend on"
    r"|deploy (?:to|with|on)"
    r"|expect|default to|support) ?(?P<value>.+)",
    "configuration",
    tenses=NOW_OR_BEFORE,
)

_OF_KIN = re.compile(rf"(?:[\w-]+ )*?(?P<who>{KIN_WORD}|{PET_WORD})'s (?P<what>.+)", re.IGNORECASE)
_WHEN = re.compile(
    r" (?:for )?(?:this|next) (?:year|month|week)$| (?:in|for) \d{4}$| of all time$| right now$"
)
_NUMBERED = re.compile(r"\d[\d ()-]{4,}")
_CALLED = re.compile(r"(?:be )?(?:called|named) ")
_DATED = re.compile(
    r"(?:be (?:on|at|from|due|scheduled|set|planned|postponed|moved|delayed)|expire|start"
    r"|run (?:until|to)|begin|end|arrive|run out|renew|leave)\b"
)
_USES = re.compile(r"(?:use|run on|switch to|rely on|depend on) [A-Z]")
_TELLING = re.compile(r"\b(?!I\b)[A-Z]|\d|`")
_LONGEST_NOUN = 5


def told_of_thing(clause: Clause, predicate: Predicate, moment: Moment) -> Told | None:
    """What is told of something that belongs to the speaker, or of "the" something."""
    noun = clause.noun.lower()
    own = clause.whose in ("my", "our", "user's")
    if own and (told := _slot(noun, predicate) or _condition(noun, predicate)):
        return told
    if APPOINTED.fullmatch(noun) and (told := _scheduled(predicate, clause, moment)):
        return told
    if told := _set_up(clause, predicate):
        return told
    if is_ahead(f"{predicate.core} {clause.lead}".strip(), moment) and _DATED.match(predicate.core):
        return _first(SCHEDULED, predicate, clause, moment)
    if own and (told := _other_slot(noun, predicate)):
        return told
    if own and predicate.tense == "past":
        return _first(EVENTS[1:], predicate, clause, moment)
    return None


_BODY = re.compile(
    r"(?:(?:left|right|lower|upper) )?(?:knees?|back|shoulders?|hips?|ankles?|neck|heart|eyesight"
    r"|hearing|stomach|wrists?|blood pressure|cholesterol|blood sugar|skin|memory|sleep)"
)
_AILING = frame(
    r"be (?:really |pretty |quite |very |a bit |not )?(?P<value>(?:bad|weak|terrible|poor|awful"
    r"|sensitive|injured|high|low|dodgy|damaged|great|good)\b.*)",
    "user_profile",
    "health",
)
_TONGUE = re.compile(
    r"(?:spoken |written )?(?:english|spanish|french|german|italian|chinese|mandarin|japanese"
    r"|korean|portuguese|russian|arabic|hindi|dutch|swedish|polish|turkish)"
)
_SPOKEN = frame(
    r"be (?:really |pretty |quite |very |a bit |not )*(?P<value>(?:basic|fluent|rusty|good|bad|poor"
    r"|decent|okay|ok|limited|intermediate|beginner|advanced|native)\b.*)",
    "user_profile",
    "language",
)


def _condition(noun: str, predicate: Predicate) -> Told | None:
    """ "My knees are bad", "my Spanish is basic"."""
    for nouns, one in ((_BODY, _AILING), (_TONGUE, _SPOKEN)):
        match = one.pattern.match(predicate.core)
        if match and nouns.fullmatch(noun) and predicate.tense == "present":
            return _told(one, match, predicate)
    return None


def _slot(noun: str, predicate: Predicate) -> Told | None:
    of_kin = _OF_KIN.fullmatch(noun)
    what = _WHEN.sub("", of_kin["what"] if of_kin else noun)
    favourite = FAVOURITE.fullmatch(what)
    slot = SLOT_OF.get(re.sub(r"^(?:new|current|full|real|main|biggest) ", "", what))
    match = IS.pattern.match(predicate.core)
    if match is None or predicate.tense == "unreal" or not (favourite or slot):
        return None
    if slot == "phone" and not _NUMBERED.search(match["value"]):
        return None  # a phone, not its number
    kind: MemoryType = (
        "user_preference" if favourite else "plan" if slot == "goal" else "user_profile"
    )
    field = (
        f"favourite {favourite['what'] or favourite['kind'] or favourite['usual']}"
        if favourite
        else slot
    )
    if of_kin:
        kind, field = "relationship", f"{of_kin['who'].lower()}'s {field}"
    return _told(replace(IS, memory_type=kind, field=field), match, predicate)


def _scheduled(predicate: Predicate, clause: Clause, moment: Moment) -> Told | None:
    if told := _first(CANCELLED, predicate, clause, moment):
        return replace(told, negated=True)
    return _first(SCHEDULED, predicate, clause, moment)


def _set_up(clause: Clause, predicate: Predicate) -> Told | None:
    match = SET_UP.pattern.match(predicate.core)
    if match is None or predicate.tense not in SET_UP.tenses or predicate.modal:
        return None
    named = clause.whose in ("my", "our") and _USES.match(predicate.core)
    named = named or (SYSTEMS.search(clause.noun) and _CALLED.match(predicate.core))
    technical = TECHNICAL.search(match["value"]) and SYSTEMS.search(
        f"{clause.noun} {predicate.core}"
    )
    if not named and not technical:
        return None
    return _told(replace(SET_UP, field=_key(clause.noun)), match, predicate)


def _other_slot(noun: str, predicate: Predicate) -> Told | None:
    """ "My tailor is Rossi": any noun, if what it is has a name or a number."""
    match = IS.pattern.match(predicate.core)
    if match is None or predicate.tense != "present" or len(noun.split()) > _LONGEST_NOUN:
        return None
    if not _TELLING.search(match["value"]) or predicate.modal:
        return None
    field = None if noun in SLOT_OF else _key(noun)
    return _told(replace(IS, memory_type="general", field=field), match, predicate)


def _told(frame: Frame, match: re.Match[str], predicate: Predicate) -> Told:
    return Told(frame, match["value"].strip(), predicate.negated)


def _first(
    frames: tuple[Frame, ...], predicate: Predicate, clause: Clause, moment: Moment
) -> Told | None:
    for one in frames:
        match = one.pattern.match(predicate.core)
        if match is None or predicate.tense not in one.tenses:
            continue
        if not one.timed or has_time(f"{predicate.core} {clause.lead}".strip(), moment):
            return Told(one, match["value"].strip(), predicate.negated, one.ended)
    return None


def _key(noun: str) -> str:
    return re.sub(r"\s+", " ", noun.lower()).strip()
