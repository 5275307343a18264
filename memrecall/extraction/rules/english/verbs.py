"""English verbs and their forms, as far as statements about people need them."""

from typing import Literal

from memrecall.extraction.rules.frames import words

Form = Literal["base", "s", "past", "part", "ing"]

# Base, past and, where it differs, participle.
_IRREGULAR = """
be was been; become became become; begin began begun; bite bit bitten; bleed bled; bring brought
build built; burn burnt; buy bought; catch caught; choose chose chosen; cost cost; cut cut
break broke broken; come came come; deal dealt; do did done; draw drew drawn; dream dreamt
drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt
fight fought; find found; fly flew flown; forget forgot forgotten; get got gotten
give gave given; go went gone; grow grew grown; hang hung; have had; hear heard; hide hid hidden
hit hit; hold held; hurt hurt; keep kept; know knew known; lead led; learn learnt; leave left
lend lent; let let; lose lost; make made; mean meant; meet met; pay paid; put put; quit quit
read read; ride rode ridden; rise rose risen; run ran run; say said; see saw seen; sell sold
send sent; set set; sing sang sung; sit sat; sleep slept; speak spoke spoken; spend spent
split split; stand stood; steal stole stolen; swim swam swum; take took taken; teach taught
tell told; think thought; throw threw thrown; understand understood; wake woke woken; wear wore worn
win won; write wrote written
"""
_REGULAR = """
accept ache achieve add admire adopt adore agree aim appear apply appreciate arrive ask attend
avoid bake bank base believe belong bike book borrow brew brush call camp cancel care celebrate
change check clean climb close coach collect commute complete configure consider cook crash crave
create cycle dance date decide deliver deploy deserve despise detest develop die diet dine
discover dislike divorce donate drop dye earn edit email employ end enjoy enroll enrol exercise
expect explore fail fancy fast finish fish fix focus follow foster found freelance garden graduate
guess handle hand happen hate have head help hike hire hope host identify include injure intend
interview invest join jog juggle jump kayak knit label lack land launch like limit list listen
live loathe look love maintain major manage marry mention migrate mind miss move name need object
offer open operate order own pack paint park participate pass phone pick plan plant play postpone
practice practise pray prefer prepare promote publish raise reach realise realize receive
recommend record recover reduce relax release relocate rely remember rename rent repair replace
report reschedule research reside resign respect retire return review sail sample save schedule
separate serve settle share shave ship shop show sign skate skip ski smoke snore sort sound
specialise specialize stack start stay stop store stream stretch study suffer suggest support surf
switch talk taste tend thank track trade train transfer travel treat try turn type upgrade use
vacation visit volunteer wait walk want wash waste watch weigh welcome wish wonder work worry
reorganise adhd tutor mentor row code program debug self-host sponsor audit draft swap shift delay
propose engage pause resume renew expire struggle
"""
_DOUBLING = words("drop jog plan shop skip stop swim run sit put cut set get let hit ship quit pet")
_SAME_PAST = words("cost cut hit hurt let put quit read set split")


def third_person(verb: str) -> str:
    """The form after he or she: `live` is lives, `study` is studies."""
    special = {"be": "is", "have": "has", "do": "does", "go": "goes"}
    if verb in special:
        return special[verb]
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def _past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] if verb in _DOUBLING else "") + "ed"


def _progressive(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and verb not in ("be", "see", "agree"):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if verb in _DOUBLING else "") + "ing"


def _build() -> dict[str, tuple[str, Form]]:
    forms: dict[str, tuple[str, Form]] = {}
    principal = [entry.split() for line in _IRREGULAR.splitlines() for entry in line.split(";")]
    verbs = [parts for parts in principal if parts]
    verbs += [[verb, _past(verb)] for verb in _REGULAR.split()]
    for verb, past, *part in verbs:
        made: list[tuple[str, Form]] = [
            (_progressive(verb), "ing"),
            (part[0] if part else past, "part"),
            (past, "past"),
            (third_person(verb), "s"),
            (verb, "base"),
        ]
        for form, name in made:
            forms[form] = (verb, name)
    # Both forms are written; and a past that looks like the base is told by its company.
    forms |= {
        "learned": ("learn", "past"),
        "dreamed": ("dream", "past"),
        "burned": ("burn", "past"),
    }
    forms |= {"travelled": ("travel", "past"), "travelling": ("travel", "ing")}
    forms |= {"cancelled": ("cancel", "past"), "cancelling": ("cancel", "ing")}
    forms |= {"enrolled": ("enroll", "past"), "programming": ("program", "ing")}
    return forms


FORMS = _build()
"""Every known form with its verb and what form it is."""


def form_of(word: str) -> Form | None:
    """Which form of a known verb a word is; None if it is none."""
    known = FORMS.get(word.lower())
    return known[1] if known else None


def lemma(word: str) -> tuple[str, Form]:
    """The verb of a word and which form it is; of unknown words, by their endings."""
    low = word.lower()
    if low in FORMS:
        return FORMS[low]
    if low.endswith("ed") and len(low) > 4 and not low.endswith("eed"):
        return low, "past"
    if low.endswith("ing") and len(low) > 5:
        return low, "ing"
    return low, "base"


def looks_past(verb: str) -> bool:
    """Whether a base form may be a past tense as well."""
    return verb in _SAME_PAST
