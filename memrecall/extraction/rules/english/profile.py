"""Frames of who somebody is: name, age, home, languages; and all that make a profile."""

from memrecall.extraction.rules.english.circumstances import DIETS, FAMILY, HEALTH, PETS
from memrecall.extraction.rules.english.table import NAME, NUMBER, P, frame
from memrecall.extraction.rules.english.work import SCHOOL, WORK
from memrecall.extraction.rules.frames import ANY, PAST

_NATIONS = (
    r"(?:[A-Z]\w+(?:ese|ish|ian|ean|can|man|ard|uayan|aiian|isian|wegian)|French|Dutch|Greek|Thai"
    r"|Swiss|Czech|Iraqi|Israeli|Pakistani|Korean|Danish|Irish|Welsh|Scottish|British"
    r"|Spanish|Turkish"
    r"|Finnish|Swedish|Polish|Chinese|Japanese|American|Indian|German|Catalan|Uzbek|Kazakh|Slovak"
    r"|Slovene|Croat|Serb|Afghan|Filipino|Nepali|Bengali|Emirati)"
)
NAMES = (
    frame(r"change my (?:last name|surname|name) to (?P<value>[A-Z].+)", P, "surname", tenses=PAST),
    frame(rf"go by (?P<value>{NAME})", P, "nickname"),
    frame(rf"be (?:called|known as) (?P<value>{NAME})", P, "name", whom="anybody"),
    frame(rf"be named (?P<value>{NAME})", P, "name"),
)
SELF_NAME = (
    frame(
        rf"be (?P<value>(?!{_NATIONS}\b|(?i:{DIETS})\b)[A-Z][a-z'’-]+(?: [A-Z][\w'’.-]*){{0,2}})$",
        P,
        "name",
        whom="speaker",
    ),
)
"""\"I am Anna\": whoever says it of another tells what he is, not his name."""
AGES = (
    frame(
        rf"be (?:almost |nearly |about )?(?P<value>{NUMBER})(?: years? old| years? of age| y/?o)?$",
        P,
        "age",
    ),
    frame(rf"be (?P<value>{NUMBER}) (?:years?|months?|weeks?) old", P, "age"),
    frame(rf"turn (?P<value>{NUMBER})\b", P, "age", tenses=ANY),
    frame(
        r"be born (?:and raised )?in (?P<value>(?!\d)[A-Z].*)",
        P,
        "birthplace",
        "born_in",
        "place",
        tenses=PAST,
    ),
    frame(r"be born (?:on|in) (?P<value>.*\d.*)", P, "birthday", tenses=PAST),
)
HOMES = (
    frame(
        r"rent (?P<value>(?:an?|the|my) (?:[\w-]+ )*(?:studio|flat|apartment|room|house"
        r"|place)\b.*)",
        P,
        "home",
    ),
    frame(
        r"(?:hold|have) (?P<value>(?:an? )?(?:dual |[A-Z]\w+ )(?:citizenship|passport"
        r"|nationality)\b.*)",
        P,
        "nationality",
    ),
    frame(r"owe (?P<value>[A-Z]\w+ .+)", "general"),
    frame(r"be back in (?P<value>[A-Z].*)", P, "home", "lives_in", "place"),
    frame(
        r"share (?P<value>(?:an?|my|the) (?:flat|apartment|house|room|place) with .+)",
        P,
        "household",
    ),
    frame(
        r"live (?:together |here |over here |out here )?(?:in|at|on|near|outside(?: of)?|close to"
        r"|just outside) "
        r"(?P<value>(?!the moment|fear|peace)\S.*)",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame(
        r"(?:be (?:currently )?based|reside|be located|be staying permanently) (?:in|at|near"
        r"|out of) (?P<value>.+)",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame(
        r"(?:move|relocate|emigrate|immigrate)(?: back| over| house| home)?(?: from .+?)? "
        r"(?:in )?(?:to|into) (?P<value>.+)",
        P,
        "home",
        "lives_in",
        "place",
        tenses=PAST,
    ),
    frame(r"(?:settle(?: down)?) in (?P<value>.+)", P, "home", "lives_in", "place", tenses=PAST),
    frame(r"live (?P<value>alone|by myself|on my own|abroad|with .+)", P, "household"),
    frame(
        r"(?:be (?:originally )?from|come from|hail from) (?P<value>(?!\d|now|then|home|work"
        r"|today|January|February|March|April|May|June|July|August|September|October|November"
        r"|December|Monday|Tuesday|the (?:start|beginning|team|same)|scratch|my|our|your)\S.*)",
        P,
        "origin",
        "from",
        "place",
    ),
    frame(r"grow up (?:in|on|near) (?P<value>.+)", P, "origin", "grew_up_in", "place", tenses=PAST),
    frame(
        rf"be (?:half[- ]|originally )?(?P<value>{_NATIONS})(?:$|[ ,](?:but|and|by|living))",
        P,
        "nationality",
    ),
    frame(r"live (?:in|at|near|with) (?P<value>.+)", "event", None, tenses=PAST),
)
FAITHS = (
    frame(
        r"be (?:an? )?(?P<value>(?:devout |practising |practicing )?(?:Muslim|Jewish|Hindu|Buddhist"
        r"|Christian|Catholic|Protestant|Sikh|atheist|agnostic|Mormon|Quaker|Orthodox))\b",
        P,
        "religion",
    ),
)
WHAT_ELSE = (
    frame(
        r"be (?:an?|the|more of an?|much of an?) (?P<value>(?!\d|bit|little|lot|few|mess|wreck|fool"
        r"|idiot|genius|liar|joke|same|one\b|only|kind|type|sort|person|way|case|problem|reason"
        r"|point|time|best|worst|first|last|big|huge|total|complete|good|great|nice)\S+(?: \S+)*)$",
        P,
    ),
)
"""What somebody is in words of his own: "a light sleeper", "the oldest of five"."""

MEMBERSHIP = (
    frame(
        r"be (?:an? |the )?(?:\w+ )?(?:member|captain|president|chair|treasurer|secretary"
        r"|part|volunteer) (?:of|in|at) (?P<value>(?!the problem|it|this|that)\S.*)",
        P,
        "member_of",
        "member_of",
        "organization",
    ),
    frame(
        r"(?:belong to|be in) (?P<value>(?:an?|the|my|our) (?:[\w'-]+ ){0,4}(?:club|band"
        r"|choir|orchestra|team|league|church|union|society|book club|troupe|scouts)\b.*)",
        P,
        "member_of",
        "member_of",
        "organization",
    ),
)
LANGUAGES = (
    frame(
        r"(?:speak|be fluent in|be conversational in|be bilingual in) (?P<value>(?!up|with|to"
        r"|of|for|at|about)\S.*)",
        P,
        "language",
        "speaks",
        "language",
    ),
    frame(
        r"(?:learn (?P<value>(?:how to |to )?(?!about|a lot|that|from|more|it)\S.*)|take "
        r"(?P<course>\S.*? (?:lessons|classes|course|courses))\b.*)$",
        P,
        "learning",
        "learns",
        "field",
    ),
)
PROFILE = (
    *FAITHS,
    *NAMES,
    *AGES,
    *HEALTH,
    *MEMBERSHIP,
    *FAMILY,
    *PETS,
    *SCHOOL,
    *HOMES,
    *WORK,
    *LANGUAGES,
)
"""All of them, the more telling first."""
