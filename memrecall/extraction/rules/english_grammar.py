"""English grammar: contractions, verb forms, verb phrases and grammatical person."""

import re
from functools import lru_cache
from typing import Literal

from memrecall.extraction.rules.statements import Tense, VerbPhrase
from memrecall.extraction.rules.tables import load_table

VerbForm = Literal["base", "s", "past", "part", "ing"]

EN = load_table("en")

_ADVERBS = EN.words("adverbs")
_MODALS = EN.words("modals")
_UNCHANGED_PAST = EN.words("unchanged_past")
_OVER = EN.words("reported_when_over")
_THIRD_PERSON = {"be": "is", "have": "has", "do": "does", "go": "goes"}
_BE = {"am", "is", "are", "was", "were"}
_PAST_AUXILIARIES = {"was", "were", "had", "did"}
_FINITE = {"was", "had", "did", "is", "has", "does", "used"}


def third_person(verb: str) -> str:
    """Return the third person of a verb: lives, studies."""
    if verb in _THIRD_PERSON:
        return _THIRD_PERSON[verb]
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def _past(verb: str, ending: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ending + "ed"


def _progressive(verb: str, ending: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and verb not in ("be", "see", "agree"):
        return verb[:-1] + "ing"
    return verb + ending + "ing"


def _build_forms() -> dict[str, tuple[str, VerbForm]]:
    doubling = EN.words("doubling_verbs")
    endings = {verb: verb[-1] for verb in doubling}
    principal = [entry.split() for entry in EN.entries("irregular_verbs")]
    regular = dict(EN.rows("sets"))["regular_verbs"].split()
    principal += [[verb, _past(verb, endings.get(verb, ""))] for verb in regular]
    forms: dict[str, tuple[str, VerbForm]] = {}
    for verb, past, *participle in principal:
        # Later rows win: a past that looks like the base form is recognised by its context.
        forms[_progressive(verb, endings.get(verb, ""))] = (verb, "ing")
        forms[participle[0] if participle else past] = (verb, "part")
        forms[past] = (verb, "past")
        forms[third_person(verb)] = (verb, "s")
        forms[verb] = (verb, "base")
    for entry in EN.entries("verb_spellings"):
        form, verb, kind = entry.split()
        forms[form] = (verb, "ing" if kind == "ing" else "past")
    return forms


_FORMS = _build_forms()
EN.define("spelling", EN.mapping("spellings"))
EN.define("verb_form", _FORMS)
EN.define("base_form", (form for form, (_, kind) in _FORMS.items() if kind == "base"))
EN.define("finite_form", (form for form, (_, kind) in _FORMS.items() if kind in ("s", "past")))


def verb_form(word: str) -> VerbForm | None:
    """Return which form of a known verb a word is, or None."""
    form = _FORMS.get(word.lower())
    return form[1] if form else None


def lemmatize(word: str) -> tuple[str, VerbForm]:
    """Return the verb of a word and its form; unknown words are judged by their endings."""
    low = word.lower()
    if low in _FORMS:
        return _FORMS[low]
    if low.endswith("ed") and len(low) > 4 and not low.endswith("eed"):
        return low, "past"
    if low.endswith("ing") and len(low) > 5:
        return low, "ing"
    return low, "base"


def _spell(word: re.Match[str]) -> str:
    return EN.mapping("spellings")[word.group().lower()].replace("_", " ")


@lru_cache(maxsize=64)  # a sentence is read again as the previous one
def expand_contractions(text: str) -> str:
    """Return the text with I'm, don't and gonna written out."""
    text = EN.pattern("spelling").sub(_spell, text)
    return re.sub(r"\s+", " ", EN.rewrite("contractions", text)).strip()


class PhraseReader:
    """Reads a predicate without contractions, from its auxiliaries to its main verb."""

    def __init__(self, text: str, lead: str) -> None:
        self.text = text
        self.lead = lead
        self.words = text.split()
        self.position = 0
        self.tense: Tense = "present"
        self.negated = self.ended = self.progressive = False
        self.modal = ""
        self.adverbs: set[str] = set()

    def read(self) -> VerbPhrase:
        """Return the verb phrase; its core is empty if there is no verb."""
        self._skip_adverbs()
        core = self._read_verb()
        timing = f"{core} {self.lead}".strip()
        regular = self.adverbs & EN.words("habit_adverbs") or EN.search("habit", timing)
        return VerbPhrase(
            self.text,
            core,
            self.tense,
            timing,
            self.negated,
            self.ended or (self.negated and EN.search("no_more", core) is not None),
            self.progressive,
            bool(regular),
            self.modal,
        )

    def _word(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.words[place].lower().strip(",") if place < len(self.words) else ""

    def _with_rest(self, verb: str) -> str:
        return " ".join([verb, *self.words[self.position :]]).strip()

    def _skip_adverbs(self) -> None:
        """Skip adverbs and negations, and note them."""
        while word := self._word():
            if word == "no" and self._word(1) == "longer":
                self.negated = self.ended = True
                self.position += 2
            elif word == "not":
                self.negated = True
                self.position += 1
            elif word in _ADVERBS or (word.endswith("ly") and len(word) > 4 and word != "family"):
                self.negated |= word == "never"
                self.adverbs.add(word)
                self.position += 1
            else:
                return

    def _read_verb(self) -> str:
        word = self._word()
        self.tense = "past" if word in _PAST_AUXILIARIES else "present"
        if word in _BE:
            return self._read_be()
        if word in ("have", "has", "had"):
            return self._read_have()
        if word in ("do", "does", "did"):
            return self._read_do()
        if word in _MODALS:
            return self._read_modal(word)
        if word == "used" and self._word(1) == "to":
            self.position += 2
            self.tense, self.ended = "past", True
            return self._read_base()
        return self._read_main()

    def _read_be(self) -> str:
        self.position += 1
        self._skip_adverbs()
        if self._word() == "going" and self._word(1) == "to" and self._is_verb(2):
            self.position += 2
            self.tense = "past" if self.tense == "past" else "future"
            return self._read_base()
        verb, form = lemmatize(self._word())
        if form == "ing" and (verb != self._word() or self._word(1)):
            self.progressive = True
            self.position += 1
            return self._with_rest(verb)
        return self._with_rest("be")

    def _read_have(self) -> str:
        start, tense = self.position, self.tense
        self.position += 1
        self._skip_adverbs()
        word = self._word()
        if word == "been":
            core = self._read_be()
            self.tense = tense
            return core
        if word == "got" and self._word(1) not in ("to", ""):
            self.position += 1
            return self._with_rest("have")
        verb, form = lemmatize(word)
        is_over = form in ("part", "past") or verb in _UNCHANGED_PAST
        if is_over and (word not in EN.words("participle_or_adjective") or self._has_object()):
            # "Have moved" is a step that is over; "have always loved" still holds.
            still_holds = "always" in self.adverbs or EN.search("going_on", self._with_rest(""))
            self.tense = "present" if verb in EN.words("state_verbs") and still_holds else "past"
            self.position += 1
            return self._with_rest(verb)
        self.position = start + 1
        return self._with_rest("have")

    def _has_object(self) -> bool:
        """Tell "I have left Siemens" from "I have left"."""
        after = self.words[self.position + 1 : self.position + 2]
        return bool(after) and (
            after[0][0].isupper() or after[0].lower() in EN.words("object_openers")
        )

    def _read_do(self) -> str:
        self.position += 1
        if self._word() != "not" and lemmatize(self._word())[1] != "base":
            return self._with_rest("do")
        self._skip_adverbs()
        return self._read_base() if self._is_verb(0) else self._with_rest("do")

    def _read_modal(self, word: str) -> str:
        self.position += 1
        self.modal = word
        self.negated |= word == "cannot"
        if word in ("will", "shall"):
            self.tense = "future"
        elif word in EN.words("unreal_modals"):
            self.tense = "unreal"
        self._skip_adverbs()
        return self._read_base()

    def _read_base(self) -> str:
        self._skip_adverbs()
        verb = lemmatize(self._word())[0]
        self.position += 1
        return self._with_rest(verb)

    def _read_main(self) -> str:
        verb, form = lemmatize(self._word())
        self.position += 1
        unchanged = verb in _UNCHANGED_PAST and EN.search("past_time", self._with_rest(""))
        if form in ("past", "part") or unchanged or verb in _OVER:
            self.tense = "past"
        return self._with_rest(verb)

    def _is_verb(self, ahead: int) -> bool:
        word = self._word(ahead)
        return lemmatize(word)[1] == "base" and word not in EN.words("determiners")


_FIRST_PERSON_VERBS = {"am": "is", "are": "is", "were": "was", "have": "has", "do": "does"}


def conjugate(text: str, *, past: bool = False) -> str:
    """Return the predicate of "I" as that of a third person: "live" becomes "lives".

    With `past`, a form that may be either tense is a past tense: "put", "quit".
    """
    words = text.split()
    for place, token in enumerate(words):
        word = token.lower().rstrip(",")
        is_adverb = word.endswith("ly") and not verb_form(word)  # "fly" and "apply" are verbs
        if word in _ADVERBS or word in ("not", "no", "longer") or is_adverb:
            continue
        tail = token[len(word) :]
        if word in _FIRST_PERSON_VERBS:
            words[place] = _FIRST_PERSON_VERBS[word] + tail
        elif word not in _MODALS and word not in _FINITE:
            verb, form = lemmatize(word)
            if form == "base" and not (past and verb in _UNCHANGED_PAST) and word not in _OVER:
                words[place] = third_person(verb) + tail
        break
    return " ".join(words)


_OWN_FORMS = {"my": "their", "me": "them", "mine": "theirs", "myself": "themselves", "our": "their"}
_OWN_FORMS |= {"us": "them", "ours": "theirs", "ourselves": "themselves", "i": "they", "we": "they"}


def to_third_person(text: str, speaker: str, *, own: bool) -> str:
    """Replace first persons: "their" in a clause about the speaker, else "Ann's"."""
    forms = _OWN_FORMS
    if not own:
        name = f"{speaker}'s"
        forms = {"my": name, "our": name, "mine": name, "ours": name, "myself": speaker}
        forms |= {"me": speaker, "us": speaker, "i": speaker, "we": speaker, "ourselves": speaker}
    verbs = {"am": "are", "have": "have", "was": "were", "do": "do"} if own else {"am": "is"}

    def agree(match: re.Match[str]) -> str:
        return match.group().replace(match["verb"], verbs.get(match["verb"], match["verb"]))

    text = EN.pattern("verb_after_first_person").sub(agree, text)
    return EN.pattern("first_person").sub(lambda match: forms[match.group().lower()], text)
