"""English grammar, as far as "I" becomes "User": contractions, verb phrases, persons."""

import re
from dataclasses import dataclass

from memrecall.extraction.rules.english.verbs import lemma, looks_past, third_person
from memrecall.extraction.rules.frames import Tense, words

_CONTRACTIONS = tuple(
    (re.compile(pattern, re.IGNORECASE), full)
    for pattern, full in (
        (r"\bi'?m\b(?!\w)(?<!\bim\b\.)", "I am"),
        (r"\bive\b|\bi've\b", "I have"),
        (r"\bcan'?t\b", "cannot"),
        (r"\bwon'?t\b", "will not"),
        (r"\b(do|does|did|is|are|was|were|has|have|had|would|could|should)n'?t\b", r"\1 not"),
        (r"\bain't\b", "is not"),
        (r"\b(\w+)'ve\b", r"\1 have"),
        (r"\b(\w+)'re\b", r"\1 are"),
        (r"\b(\w+)'ll\b", r"\1 will"),
        (r"\b(i|we|he|she|they)'d (been|better|had|already|just|never)\b", r"\1 had \2"),
        (r"\b(i|we|he|she|they|you|it)'d\b", r"\1 would"),
        (r"\b([a-z]+)'s been\b", r"\1 has been"),
        (r"\b(he|she|it|that|there|here|who|what|where|how|let|name)'s\b", r"\1 is"),
        (
            r"\b([a-z]+)'s (?=(?:called|named|on|in|at|a|an|the|from|not|allergic|moving|going"
            r"|getting|been|now|also|\d)\b)",
            r"\1 is ",
        ),
        (r"\bgonna\b", "going to"),
        (r"\bwanna\b", "want to"),
        (r"\bgotta\b", "have to"),
        (r"\b'?cause\b|\bcuz\b|\bcos\b", "because"),
        (r"\blet is\b", "let us"),
        (r"\bi\b(?!\.)", "I"),
    )
)
_ADVERBS = words(
    """
    really also still just always usually often never sometimes mostly mainly currently now
    actually even already both only rarely hardly seldom generally normally typically recently
    finally officially absolutely totally definitely truly simply basically literally kinda
    sorta probably personally honestly too strictly severely frequently occasionally almost
    permanently temporarily soon then ever originally previously formerly once first last all
    regularly happily proudly deeply particularly especially secretly primarily nearly
    """
)
_RATHER_PAST = words("quit split")  # said of oneself, they are told when they are over
_PLAIN_TOO = words("set cut put left")
_OBJECT_NEXT = words("my our the out down back off up")
_DETERMINERS = words("the a an my our his her their this that")
_BE = {"am", "is", "are"}
_WAS = {"was", "were"}
_MODALS = {"can", "cannot", "could", "may", "might", "must", "should", "would", "shall", "will"}
_UNREAL = {"could", "may", "might", "would", "should"}
_STATES = words("love like hate enjoy prefer live work own play use speak want know be")
_SINCE = re.compile(r"\b(?:since|for)\b", re.IGNORECASE)
_AGO = re.compile(
    r"\b(?:ago|last|yesterday|this morning|on \w+day|in (?:19|20)\d\d)\b", re.IGNORECASE
)
_ENDED = re.compile(r"\b(?:any ?more|any longer)\b", re.IGNORECASE)


def expand(text: str) -> str:
    """The text with its contractions written out: I'm, don't, gonna."""
    for pattern, full in _CONTRACTIONS:
        text = pattern.sub(full, text)
    return re.sub(r"\s+", " ", text).strip()


@dataclass(frozen=True, slots=True)
class Predicate:
    """What a clause says of its subject.

    `core` begins with the main verb's base form, without auxiliaries, adverbs and "not". `ended`
    says that it was so and is no more.
    """

    said: str
    core: str
    tense: Tense
    negated: bool = False
    ended: bool = False
    progressive: bool = False
    modal: str = ""
    adverbs: frozenset[str] = frozenset()


class _Reader:
    """Walks over the auxiliaries of a predicate to its main verb."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.words = said.split()
        self.at = 0
        self.tense: Tense = "present"
        self.negated = self.ended = self.progressive = False
        self.modal = ""
        self.adverbs: set[str] = set()

    def read(self) -> Predicate:
        """The predicate; its core is empty if there is no verb."""
        self._skip()
        core = self._read_verb()
        if self.negated and _ENDED.search(core):
            self.ended = True
        return Predicate(
            self.said,
            core,
            self.tense,
            self.negated,
            self.ended,
            self.progressive,
            self.modal,
            frozenset(self.adverbs),
        )

    def _word(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.words[place].lower().strip(",") if place < len(self.words) else ""

    def _rest(self) -> str:
        return " ".join(self.words[self.at :])

    def _skip(self) -> None:
        """Over adverbs and negations, which are noted."""
        while word := self._word():
            if word == "no" and self._word(1) == "longer":
                self.negated = self.ended = True
                self.at += 2
            elif word == "not":
                self.negated = True
                self.at += 1
            elif word in _ADVERBS or (word.endswith("ly") and len(word) > 4 and word != "family"):
                self.negated |= word == "never"
                self.adverbs.add(word)
                self.at += 1
            else:
                return

    def _read_verb(self) -> str:
        word = self._word()
        if word in _BE or word in _WAS:
            return self._read_be(past=word in _WAS)
        if word in ("have", "has", "had"):
            return self._read_have(past=word == "had")
        if word in ("do", "does", "did"):
            return self._read_do(past=word == "did")
        if word in _MODALS:
            return self._read_modal(word)
        if word == "used" and self._word(1) == "to":
            self.at += 2
            self.tense, self.ended = "past", True
            return self._base()
        return self._main()

    def _read_be(self, *, past: bool) -> str:
        self.at += 1
        self.tense = "past" if past else "present"
        self._skip()
        if self._word() == "going" and self._word(1) == "to" and self._is_verb(2):
            self.at += 2
            self.tense = "past" if past else "future"
            return self._base()
        verb, form = lemma(self._word())
        if form == "ing" and (verb != self._word() or self._word(1)):
            self.progressive = True
            self.at += 1
            return f"{verb} {self._rest()}".strip()
        return f"be {self._rest()}".strip()

    def _read_have(self, *, past: bool) -> str:
        start = self.at
        self.at += 1
        self.tense = "past" if past else "present"
        self._skip()
        word = self._word()
        if word == "been":
            core = self._read_be(past=past)
            self.tense = "past" if past else "present"
            return core
        if word == "got" and self._word(1) not in ("to", ""):
            self.at += 1
            return f"have {self._rest()}".strip()
        verb, form = lemma(word)
        over = form in ("part", "past") or looks_past(verb)
        if over and (word not in _PLAIN_TOO or self._has_object()):
            # "Have moved" tells a step that is over; "have always loved" something that goes on.
            goes_on = "always" in self.adverbs or _SINCE.search(self._rest())
            self.tense = "present" if verb in _STATES and goes_on else "past"
            self.at += 1
            return f"{verb} {self._rest()}".strip()
        self.at = start + 1
        return f"have {self._rest()}".strip()

    def _has_object(self) -> bool:
        """Whether "have left" has left something: "I have left Siemens", not "I have left"."""
        after = self.words[self.at + 1 : self.at + 2]
        return bool(after) and (after[0][0].isupper() or after[0].lower() in _OBJECT_NEXT)

    def _read_do(self, *, past: bool) -> str:
        self.at += 1
        self.tense = "past" if past else "present"
        if self._word() != "not" and lemma(self._word())[1] != "base":
            return f"do {self._rest()}".strip()
        self._skip()
        if not self._is_verb(0):
            return f"do {self._rest()}".strip()
        return self._base()

    def _read_modal(self, word: str) -> str:
        self.at += 1
        self.modal = word
        self.negated |= word == "cannot"
        if word in ("will", "shall"):
            self.tense = "future"
        elif word in _UNREAL:
            self.tense = "unreal"
        self._skip()
        return self._base()

    def _base(self) -> str:
        self._skip()
        verb = lemma(self._word())[0]
        self.at += 1
        return f"{verb} {self._rest()}".strip()

    def _main(self) -> str:
        verb, form = lemma(self._word())
        self.at += 1
        if (
            form in ("past", "part")
            or (looks_past(verb) and _AGO.search(self._rest()))
            or verb in _RATHER_PAST
        ):
            self.tense = "past"
        return f"{verb} {self._rest()}".strip()

    def _is_verb(self, ahead: int) -> bool:
        word = self._word(ahead)
        return lemma(word)[1] == "base" and word not in _DETERMINERS


def read_predicate(said: str) -> Predicate:
    """Take a predicate apart; contractions were expanded before."""
    return _Reader(said).read()


_FIRST_PERSON = {"am": "is", "are": "is", "were": "was", "have": "has", "do": "does"}


def conjugate(said: str, *, past: bool = False) -> str:
    """The predicate of "I" as that of "User": live in Rome is lives in Rome.

    With `past`, a form that may be either is a past tense: "put", "quit".
    """
    words = said.split()
    for at, written in enumerate(words):
        word = written.lower().rstrip(",")
        if word in _ADVERBS or word in ("not", "no", "longer") or word.endswith("ly"):
            continue
        tail = written[len(word) :]
        if word in _FIRST_PERSON:
            words[at] = _FIRST_PERSON[word] + tail
        elif word not in _MODALS and word not in ("was", "had", "did", "is", "has", "does", "used"):
            verb, form = lemma(word)
            if form == "base" and not (past and looks_past(verb)) and word not in _RATHER_PAST:
                words[at] = third_person(verb) + tail
        break
    return " ".join(words)


_OWN = {"my": "their", "me": "them", "mine": "theirs", "myself": "themselves", "our": "their"}
_OWN |= {"us": "them", "ours": "theirs", "ourselves": "themselves", "i": "they", "we": "they"}
# "us-east-1" and "I/O" are nobody.
_PERSON = re.compile(
    r"(?<![-/.@\w])(my|me|mine|myself|our|us|ours|ourselves|i|we)\b(?![-/@]|\.\w)", re.IGNORECASE
)
_VERB_AFTER_I = re.compile(r"\b(?:I|[Ww]e) ((?:am|have|was|do)\b)")


def turn_persons(text: str, speaker: str, *, own: bool) -> str:
    """First persons as third: of the speaker himself "their", of somebody else "Ann's"."""
    forms = _OWN
    if not own:
        name = f"{speaker}'s"
        forms = {"my": name, "our": name, "mine": name, "ours": name, "myself": speaker}
        forms |= {"me": speaker, "us": speaker, "i": speaker, "we": speaker, "ourselves": speaker}
    agree = {"am": "are", "have": "have", "was": "were", "do": "do"} if own else {"am": "is"}
    text = _VERB_AFTER_I.sub(lambda m: m.group().replace(m[1], agree.get(m[1], m[1])), text)
    return _PERSON.sub(lambda match: forms[match.group().lower()], text)
