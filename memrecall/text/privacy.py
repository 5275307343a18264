"""Secrets and personal data in texts: one table of detectors, and the policy of a database.

A policy is applied to everything that is stored, before it is compared or read by anything else.
Redacting is idempotent: no detector finds the mark that takes the place of a finding.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from memrecall.errors import InvalidArgument

Action = Literal["off", "tag", "redact"]
SENSITIVE_DATA = "sensitive_data"  # the name in the metadata under which stands what was found
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)  # of an identity number's digits
_LETTER = r"(?=[^\sA-Za-z]{0,200}[A-Za-z])"  # what is to come has one
_CHECK_DIGITS = "10X98765432"
_IDS = re.compile(r"(?:\w*_)?ids?|memory_keys?|hidden")  # names of what is no text in JSON
_CARDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|35\d{14}"
    r"|6(?:011|[25]\d\d|4[4-9]\d)\d{12,15}"
)


def _is_card(text: str) -> bool:
    digits = re.sub("[ -]", "", text)
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    total = sum(map(int, digits[-1::-2])) + sum(doubled)
    return total % 10 == 0 and _CARDS.fullmatch(digits) is not None


def _is_identity_number(text: str) -> bool:
    total = sum(int(digit) * weight for digit, weight in zip(text, _WEIGHTS, strict=False))
    return _CHECK_DIGITS[total % 11] == text[-1].upper()


class Detector(NamedTuple):
    """What one kind of data looks like; what the group `keep` matches is no part of it."""

    kind: str
    is_secret: bool
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()  # without one of them, in lower case, the pattern cannot match
    check: Callable[[str], bool] = bool


def _detector(
    kind: str, pattern: str, hints: str, flags: int = 0, *, is_secret: bool = True
) -> Detector:
    # ASCII, because a word of Chinese may stand before a key without a space.
    return Detector(kind, is_secret, re.compile(pattern, re.ASCII | flags), tuple(hints.split()))


def _named(kind: str, names: str, hints: str, *, needs: str = "", word: bool = True) -> Detector:
    """Return the detector of values with a name: it stays, because it is worth remembering.

    After a colon, a value without a digit is one long word of one case, which is no name in a
    program.
    """
    value = r"[!#%&*-+\--:=?-z|~]"  # printable ASCII without quotes, commas and brackets of code
    link = r"[A-Za-z0-9_-]{0,40}[\"']?\s{0,3}(?:(?P<colon>[=:：])|是|为|\bis\b:?)\s{0,3}[\"'“「]?"
    with_digit = rf"(?={value}{{0,200}}\d){needs}{value}{{6,200}}+(?!\()"
    end = r"(?=[.!?]?(?:[\s\"',;]|[^\0-\x7f]|$))"
    only_word = rf"(?(colon)(?-i:[a-z-]{{12,200}}+|[A-Z-]{{12,200}}+){end}|(?!))"
    either = f"{with_digit}|{only_word}" if word else with_digit
    return _detector(kind, f"(?P<keep>(?:{names}){link})(?:{either})", hints, re.IGNORECASE)


def _number(kind: str, pattern: str, check: Callable[[str], bool] = bool) -> Detector:
    bounded = rf"(?<![\w.+/#@-])(?:{pattern})(?![\w-]|\.\d)"
    return Detector(kind, check is _is_card, re.compile(bounded, re.ASCII), check=check)


# In this order: what an earlier detector redacts, a later one does not see. Repetitions are bounded
# or begin where nothing before them could, so that the time for a hostile text stays linear.
DETECTORS = (
    _detector(
        "private key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:.*?-----END [A-Z ]{0,40}PRIVATE KEY-----|.*)",
        "-----begin",
        re.DOTALL,
    ),
    _detector(
        "api key",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}|\bLTAI[0-9A-Za-z]{12,30}\b"
        r"|\bAKID[0-9A-Za-z]{13,40}\b|\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,200}"
        r"|(?<![\w-])(?:sk-|mr_[0-9a-f]{16}_)[0-9A-Za-z_-]{20,500}",
        "akia asia aiza ltai akid k_live_ k_test_ sk- mr_",
    ),
    _detector(
        "token",
        r"(?<![\w-])(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|hf_|xox[abeoprs]-)"
        r"[0-9A-Za-z_-]{20,500}"
        r"|(?<![\w-])eyJ[\w-]{10,2000}\.[\w-]{10,4000}\.[\w-]{5,1000}",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- npm_ pypi- hf_ xox eyj",
    ),
    _detector(
        "token",
        r"(?P<keep>\b(?:bearer|basic)\s{1,3})(?=[\w.~+/=-]{0,200}\d)[\w.~+/=-]{16,4000}",
        "bearer basic",
        re.IGNORECASE,
    ),
    _detector("password", r"(?P<keep>://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)", "://"),
    _named("password", "passw(?:or)?d|passphrase|密码|口令", "passw passphrase 密码 口令"),
    _named("api key", "(?:api|access|secret)[ _-]?key|密钥", "key 密钥", needs=_LETTER),
    _named("token", "token(?!s)|secret", "token secret", needs=_LETTER, word=False),
    _number(
        "card number",
        r"\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|3\d{3}([ -])\d{6}\2\d{5}",
        _is_card,
    ),
    _number("Chinese identity number", r"[1-9]\d{5}(?:19|20)\d{9}[\dXx]", _is_identity_number),
    _detector(
        "e-mail",
        r"(?<![\w.%+@/-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-]|:[\w/])",
        "@",
        is_secret=False,
    ),
    _number("mobile number", r"(?:\+?86[ -]?)?1[3-9]\d(?:[ -]?\d{4}){2}"),
    _number(
        "phone number",
        r"\+(?!86[ -]?1[3-9])[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d(?:[ .-]?\d){6,12}"
        r"|0\d{2,3}-\d{7,8}|[(（]0\d{2,3}[)）] ?\d{7,8}"
        r"|(?:\([2-9]\d\d\) ?|[2-9]\d\d([.-]))\d{3}[.-]\d{4}",
    ),
)
_HINTS = [(hint, place) for place, detector in enumerate(DETECTORS) for hint in detector.hints]
_NUMBERS = {place for place, detector in enumerate(DETECTORS) if not detector.hints}
_KINDS = tuple(dict.fromkeys(detector.kind for detector in DETECTORS))
_HAS_NUMBER = re.compile(r"\d[\d ().-]{6,}\d", re.ASCII)  # as every number that is looked for


@dataclass(slots=True)
class DetectedKinds:
    """The kinds of data that a policy found, in the order of the table."""

    redacted: dict[str, int] = field(default_factory=dict)  # and how often
    tagged: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.redacted or self.tagged)

    def label(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata with the kinds, and those that they had already."""
        labels = {"redacted": [*self.redacted], "tagged": [*self.tagged]}
        merged = {n: [*dict.fromkeys([*kinds_in(metadata, n), *labels[n]])] for n in labels}
        return {**metadata, SENSITIVE_DATA: {n: kinds for n, kinds in merged.items() if kinds}}


@dataclass(frozen=True, slots=True)
class PrivacyPolicy:
    """What is done with secrets and with personal data in what is stored."""

    secrets: Action = "redact"
    personal: Action = "tag"

    @classmethod
    def parse(cls, text: str) -> "PrivacyPolicy":
        """Return the policy of a setting: an action for both, or for secrets and personal data."""
        actions = [action.strip() for action in text.split(",")]
        if len(actions) > 2 or not set(actions) <= set(get_args(Action)):
            raise InvalidArgument(
                f"privacy {text!r} is not known",
                hint="Use off, tag or redact, or two of them for secrets and personal data",
            )
        return cls(actions[0], actions[-1])  # type: ignore[arg-type]

    def redact(self, text: str, findings: DetectedKinds | None = None) -> str:
        """Return a text with a mark in place of what is redacted; `findings` gets what is found."""
        findings = DetectedKinds() if findings is None else findings
        for detector in _detectors_for(text):
            action = self.secrets if detector.is_secret else self.personal
            if action == "off":
                continue
            kinds = findings.redacted if action == "redact" else findings.tagged
            text = _replace(detector, text, kinds, keep=action == "tag")
        return text

    def protect(
        self, fields: Mapping[str, Any], findings: DetectedKinds | None = None
    ) -> dict[str, Any]:
        """Return the fields of a row that change; the metadata then says what was found."""
        findings = DetectedKinds() if findings is None else findings
        changed = {name: self._protect(value, findings) for name, value in fields.items()}
        if findings and "metadata" in fields:
            changed["metadata"] = findings.label(changed["metadata"] or {})
        return {name: value for name, value in changed.items() if value != fields[name]}

    def _protect(self, value: Any, findings: DetectedKinds) -> Any:
        if isinstance(value, str):
            return self.redact(value, findings)
        if isinstance(value, Mapping):
            return {name: self._protect_named(name, value[name], findings) for name in value}
        if isinstance(value, list | tuple):
            return type(value)(self._protect(item, findings) for item in value)
        return value

    def _protect_named(self, name: str, value: Any, findings: DetectedKinds) -> Any:
        """Return a value of an object, whose name may say that it is a secret."""
        if _IDS.fullmatch(name):
            return value
        if not isinstance(value, str) or not name.isascii():
            return self._protect(value, findings)
        start = f"{name}="
        redacted = self.redact(start + value, findings)
        return redacted[len(start) :] if redacted.startswith(start) else self.redact(value)


SECRETS_ONLY = PrivacyPolicy(personal="off")


def _detectors_for(text: str) -> Iterable[Detector]:
    """Return the detectors that may find something in a text: none, for most texts."""
    lower = text.lower()
    places = {place for hint, place in _HINTS if hint in lower}
    if _HAS_NUMBER.search(text):
        places |= _NUMBERS
    return (DETECTORS[place] for place in sorted(places)) if places else ()


def _replace(detector: Detector, text: str, kinds: dict[str, int], *, keep: bool) -> str:
    kind = detector.kind

    def mark(match: re.Match[str]) -> str:
        if not detector.check(match[0]):
            return match[0]
        kinds[kind] = kinds.get(kind, 0) + 1
        before = match["keep"] if "keep" in detector.pattern.groupindex else ""
        return match[0] if keep else f"{before}[redacted: {kind}]"

    return detector.pattern.sub(mark, text)


def kinds_in(metadata: Mapping[str, Any], name: str = "redacted") -> list[str]:
    """Return the kinds that were redacted or tagged in a row, as its metadata says."""
    labels = metadata.get(SENSITIVE_DATA)
    kinds = labels.get(name) if isinstance(labels, Mapping) else None
    # A caller's own metadata may have this name.
    return [kind for kind in _KINDS if kind in kinds] if isinstance(kinds, list) else []
