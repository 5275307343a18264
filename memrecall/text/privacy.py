"""Secrets and personal data in texts: one table of detectors, and the policy of a database.

A policy is applied to everything that is stored, before it is compared or read by anything else.
Redacting is idempotent: no detector finds the mark that takes the place of a finding.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from memrecall.errors import InvalidArgument

Action = Literal["off", "tag", "redact"]
SENSITIVE_DATA = "sensitive_data"  # the name in the metadata under which stands what was found
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)  # of an identity number's digits
_CHECK_DIGITS = "10X98765432"
_IBAN_LENGTHS = {
    country: int(length)
    for country, length in re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BR29BY28CH21CR22CY28CZ24DE22DK18DO28EE20EG29ES24FI18"
        "FO18FR27GB22GE22GI23GL18GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20"
        "LU20LV21MC27MD24ME22MK19MR27MT31MU30NL18NO15PK24PL28PS29PT25QA29RO24RS22SA24SC31SE24SI19"
        "SK24SM27ST25SV28TL23TN24TR26UA29VA22VG24XK20",
    )
}
# Names of ids in JSON that the service itself uses: changed, they would lead nowhere.
_IDS = re.compile(r"(?:(?:user|agent|session|run|memory|\w*message)_)?ids?|\w*memory_keys?|hidden")
_CARDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|35\d{14}"
    r"|6(?:011|[25]\d\d|4[4-9]\d)\d{12,15}"
)
# Spaces and full-width characters, without the marks that end a value in a Chinese sentence.
_WIDTHS = {0xFEE0 + code: code for code in range(0x21, 0x7F) if chr(code) not in "!,:;?()"}
_WIDTHS |= dict.fromkeys((0xA0, 0x2007, 0x202F, 0x3000), 0x20)
_IS_WIDE = re.compile(f"[{re.escape(''.join(map(chr, _WIDTHS)))}]")
_CLOSING = {"“": "”", "‘": "’", "「": "」", "『": "』"}  # other quotes close themselves
_OPENING = {")": "(", "]": "[", "}": "{", ">": "<"}
_JUDGED, _LONGEST_QUOTED = 100, 4_000  # characters
# Up to white space or Chinese, and without the next name and value of a list.
_VALUE = r"(?:(?![;&,][A-Za-z_]\w{2,40}=[\w\"']|\[redacted: )[!-~À-ԯ])"
_BEGINNING, _REST = re.compile(rf"{_VALUE}{{1,{_JUDGED}}}"), re.compile(f"{_VALUE}*")
_ALTERNATION = re.compile(r"(?<=[A-Za-z])\d|(?<=\d)[A-Za-z]")
_LONG = re.compile(r"(?=.*\d)[A-Za-z0-9+/=]{24,}")
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[^-]{8,}")
_WORD = re.compile(r"[a-z-]{12,}|[A-Z-]{12,}")  # of one case, unlike a name in a program
_ALGORITHM = re.compile(r"(?:[A-Z]{2,5}|sha|aes|md)-?\d{1,3}")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SOCIAL_SECURITY = re.compile(
    r"\bSSN|(?<!redacted: )\bsocial (?:security(?! number\])|is\b|was\b)|社[会會]安全",
    re.ASCII | re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?]\s+(?=\S)|[。！？\n]")
_PLACEHOLDER = re.compile(r"[$%]?[{(<\[].*[})>\]]|\$[A-Z_][A-Z0-9_]*|https?://.*")
_CODE = re.compile(
    r"[a-z]+(?:[._]+[a-z]+\d?)+(?:_\d)?(?:[\[(].*)?|[a-z][A-Za-z_.]{2,}\((?:[^)]*|.*\)\W*)"
    r"|(?:~|\.{1,2})?(?:/[a-z0-9_.-]+)+/?"
)


def _is_card(text: str) -> bool:
    digits = re.sub("[ .-]", "", text)
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    total = sum(map(int, digits[-1::-2])) + sum(doubled)
    return total % 10 == 0 and _CARDS.fullmatch(digits) is not None


def _is_identity_number(text: str) -> bool:
    total = sum(int(digit) * weight for digit, weight in zip(text, _WEIGHTS, strict=False))
    return _CHECK_DIGITS[total % 11] == text[-1].upper()


def _find_account_end(match: re.Match[str]) -> int:
    """Return the end of an account number: its country says how long it is."""
    length, text = _IBAN_LENGTHS.get(match[0][:2], 0), match.string
    characters = re.compile(rf"(?:[A-Z0-9] ?){{{length - 1}}}[A-Z0-9](?![\w-])", re.ASCII)
    number = characters.match(text, match.start()) if length else None
    if number is None:
        return 0
    digits = number[0].replace(" ", "")
    value = int("".join(str(int(each, 36)) for each in digits[4:] + digits[:4]))
    return number.end() if value % 97 == 1 else 0


def _find_social_security_end(match: re.Match[str]) -> int:
    """Return the end of a number that the same sentence says to be of social security."""
    text, start, end = match.string, match.start(), match.end()
    before = _SENTENCE_END.split(text[max(start - 60, 0) : start])[-1]
    after = _SENTENCE_END.split(text[end : end + 60])[0]
    return end if any(map(_SOCIAL_SECURITY.search, (before, after))) else 0


def _find_login_end(match: re.Match[str]) -> int:
    """Return the end of a name and a password in base64, as Docker keeps them."""
    try:
        login = base64.b64decode(match["login"], validate=True)
    except ValueError:
        return 0
    return match.end() if re.fullmatch(rb"[!-~]+:[ -~]+", login) else 0


def _find_mixed_end(match: re.Match[str]) -> int:
    """Return the end of a password that stands without a word for it: no plain word."""
    value = _trim(match["value"], None)
    is_mixed = re.search(r"[A-Za-z]", value) and re.search(r"\d|[!@#$%^&+~]", value)
    is_known = len(value) < 6 or _PLACEHOLDER.fullmatch(value) or _CODE.fullmatch(value)
    return match.start("value") + len(value) if is_mixed and not is_known else 0


def _find_word_end(match: re.Match[str]) -> int:
    """Return the end of a plain word that is an administrator's password."""
    return match.end() if match["sign"] or _WORD.fullmatch(match["value"]) else 0


def _is_random(value: str) -> bool:
    """Return True if letters and digits alternate as in no word and no name with a number."""
    return len(_ALTERNATION.findall(value)) >= 3 or _LONG.fullmatch(value) is not None


def _is_value(kind: str, value: str, match: re.Match[str]) -> bool:
    """Return True if what follows a name is no word and nothing that stands for the value."""
    sign, space, is_password = match["sign"], match["space"], kind == "password"
    is_code = sign and not match["quote"] and (sign == "=" or not is_password)
    if len(value) < 6 or _PLACEHOLDER.fullmatch(value) or (is_code and _CODE.fullmatch(value)):
        return False
    # After a space there may be any word; tokens and secrets are also in stories.
    if (space and not match["quote"]) or (match["bare"] and sign != "="):
        return _is_random(value) or (is_password and _MIXED.fullmatch(value) is not None)
    if space is not None and _ALGORITHM.fullmatch(value):
        return False
    if sign and kind != "token" and _WORD.fullmatch(value):
        return True
    needed = [r"\d|\w[!@#$%^&+~]+\w"] if is_password else [r"\d", "[A-Za-z]"]
    return all(re.search(pattern, value) for pattern in needed)


class Detector(NamedTuple):
    """What one kind of data looks like; what the group `keep` matches is no part of it."""

    kind: str
    is_secret: bool
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()  # without one of them, in lower case, the pattern cannot match
    find_end: Callable[[re.Match[str]], int] = re.Match.end  # 0 if it is something else


def _detector(
    kind: str, pattern: str, hints: str, flags: int = 0, *, is_secret: bool = True
) -> Detector:
    # ASCII, because a word of Chinese may stand before a key without a space.
    return Detector(kind, is_secret, re.compile(pattern, re.ASCII | flags), tuple(hints.split()))


def _named(kind: str, names: str, hints: str, bare: str = "(?!)") -> Detector:
    """Return the detector of values with a name: it stays, because it is worth remembering.

    The names of `bare` are also words of other texts than configurations.
    """
    name = rf"(?:(?P<bare>\b(?<!-)(?:{bare})\b(?![\"'-]))|{names})"
    suffix = r"(?:(?<=[A-Za-z])[A-Za-z0-9_-]{1,40})?[\"']?"
    owner = r"(?:\s(?:for|of|to|on|at)\s[^\n.,;:!?=]{1,40}?(?=\s(?:is|was)\b))?"
    verb = r"(?:是|[为為]|[改換换设設]置?[成为為]了?|\b(?:is|was|to)\b|(?<=\w)'s(?=\s))"
    verb += r"(?:：|:(?=[\s\"'“]))?"
    space = r"(?P<space>(?<=[码碼令钥鑰])|(?<=[A-Za-z]) )"
    link = rf"\s{{0,3}}(?:(?P<sign>[=:：])|{verb}|{space})\s{{0,3}}(?P<quote>[\"'`“‘「『])?"

    def find_end(match: re.Match[str]) -> int:
        text, start, quote = match.string, match.end(), match["quote"] or ""
        end = text.find(_CLOSING.get(quote, quote), start, start + _LONGEST_QUOTED)
        words = text[start : max(end, start)].split(maxsplit=1)
        if words and "\n" not in text[start:end]:
            return end if _is_value(kind, words[0][:_JUDGED], match) else 0
        beginning = _BEGINNING.match(text, start)
        value = _trim(beginning[0], match["sign"]) if beginning else ""
        if beginning is None or not _is_value(kind, value, match):
            return 0
        is_cut = len(beginning[0]) == _JUDGED
        rest = _REST.match(text, beginning.end()) if is_cut else None
        return rest.end() if rest else start + len(value)

    detector = _detector(kind, f"(?P<keep>{name}{suffix}{owner}{link})", hints, re.IGNORECASE)
    return detector._replace(find_end=find_end)


def _trim(value: str, sign: str | None) -> str:
    """Return a value without the marks of the sentence or the code that it ends."""
    marks = ".,;:\"'`*" if sign == "=" else ".,;:!?\"'`*"
    while value and (value[-1] in marks or _OPENING.get(value[-1], value) not in value):
        value = value[:-1]
    return value


def _number(
    kind: str, pattern: str, check: Callable[[str], bool] = bool, *, is_secret: bool = False
) -> Detector:
    bounded = rf"(?<![\w.+/@-])(?<!(?<!\w)#)(?<!number\])(?:{pattern})(?![\w-]|\.\d)"
    detector = _detector(kind, bounded, "", is_secret=is_secret)
    return detector._replace(find_end=lambda match: match.end() if check(match[0]) else 0)


def _find_option_end(match: re.Match[str]) -> int:
    line = match.string[max(match.start() - 200, 0) : match.start()].rpartition("\n")[2]
    return match.end() if re.search(r"\b(?:curl|mysql\w*|mariadb|sshpass)\b", line) else 0


# In this order: what an earlier detector redacts, a later one does not see. Repetitions are bounded
# or begin where nothing before them could, so that the time for a hostile text stays linear.
DETECTORS = (
    _detector(
        "private key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:.*?-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|.*)"
        r"|\b(?i:AGE-SECRET-KEY-1[0-9A-Z]{50,70})\b"
        r"|(?P<keep>\bPrivate-Lines: \d{1,4}\s{1,2})(?!\[redacted: )(?:.*?(?=\sPrivate-MAC:)|.*)",
        "-----begin age-secret-key- private-lines:",
        re.DOTALL,
    ),
    _detector(
        "api key",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35,200}|\bLTAI[0-9A-Za-z]{12,30}\b"
        r"|\bAKID[0-9A-Za-z]{13,40}\b|\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,200}"
        r"|(?<![\w-])(?:(?:sk-|mr_[0-9a-f]{16}_)[0-9A-Za-z_-]{20,500}"
        r"|(?:gsk_|xai-|pplx-|r8_)[0-9A-Za-z]{30,200}|SG\.[\w-]{16,64}\.[\w-]{16,200})",
        "akia asia aiza ltai akid k_live_ k_test_ sk- mr_ gsk_ xai- pplx- r8_ sg.",
    ),
    _detector(
        "token",
        r"(?<![\w-])(?:(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|hf_|xox[abeoprs]-|shp[a-z]{2}_"
        r"|whsec_|dop_v1_|GOCSPX-|ya29\.)[0-9A-Za-z_-]{20,500}"
        r"|eyJ[\w-]{10,2000}\.[\w-]{10,4000}\.[\w-]{5,1000}|\d{8,12}:AA[\w-]{33,200})"
        r"|(?P<keep>hooks\.slack\.com/services/)[\w/]{20,200}",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- npm_ pypi- hf_ xox eyj shp whsec_ dop_v1_"
        " gocspx- ya29. :aa slack.com",
    ),
    _detector("token", r"(?P<keep>(?:[?&]|&amp;)sig=)[\w%+/-]{30,200}=?", "sig="),
    _detector(
        "token",
        r"(?P<keep>\"auth\"\s{0,3}:\s{0,3}\")(?P<login>[A-Za-z0-9+/]{8,500}={0,2})(?=\")",
        '"auth"',
    )._replace(find_end=_find_login_end),
    _detector("password", r"(?P<keep>://[^\s/:@]{0,100}:)[^\s/]{1,200}(?=@)", "://"),
    _detector(
        "password",
        r"(?P<keep>\bjdbc:oracle:\w{1,10}:[^\s/:@]{1,100}/)[^\s/]{1,200}(?=@)",
        "jdbc:oracle:",
    ),
    _detector(
        "password",
        r"(?P<keep>\b(?:admin(?:istrator)?|root) / |\((?:pass|pwd?|password) )"
        r"(?!\[redacted: )(?P<value>[^\s()（）]{6,100})",
        "admin root (pass (pw",
        re.IGNORECASE,
    )._replace(find_end=_find_mixed_end),
    _detector(
        "password",
        r"(?P<keep>\b(?:root|admin(?:istrator)?) (?:pass(?:w(?:or)?d)?|pwd?)"
        r"\s?(?:(?P<sign>[=:：])|\bis\b)\s{0,3})"
        r"(?P<value>[A-Za-z-]{4,100})(?=[.,;!?)]{1,3}(?:\s|$)|\s{0,3}$)",
        "root admin",
        re.IGNORECASE | re.MULTILINE,
    )._replace(find_end=_find_word_end),
    _detector(
        "password",
        r"(?P<keep>\s(?:-p|(?<=pass )-p |(?:-u|--user)[ =]?[\"']?[\w.@-]{1,64}:)[\"']?)"
        r"(?!\[redacted: )[^\s\"']{4,200}",
        "curl mysql mariadb sshpass",
    )._replace(find_end=_find_option_end),
    _number(
        "card number",
        r"\d{13,19}|\d{4}( {1,2}|[.-])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?"
        r"|3\d{3}( {1,2}|[.-])\d{6}\2\d{5}",
        _is_card,
        is_secret=True,
    ),
    _number(
        "bank account number", r"[A-Z]{2}\d\d ?[A-Z0-9]{4}[A-Z0-9 ]{6,40}", is_secret=True
    )._replace(find_end=_find_account_end),
    _number("Chinese identity number", r"[1-9]\d{5}(?:19|20)\d{9}[\dXx]", _is_identity_number),
    _detector(
        "e-mail",
        r"(?<![\w.%+@/-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}"
        r"(?!(?:png|jpe?g|gif|svg|webp)\b)[A-Za-z]{2,24}(?![\w-]|:[\w/])",
        "@",
        is_secret=False,
    ),
    _number("mobile number", r"(?:\+?86[ .-]?)?1[3-9]\d(?:[ .-]?\d{4}){2}"),
    _number(
        "phone number",
        r"\+(?!86[ -]?1[3-9])[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d(?:[ .-]?\d){6,12}"
        r"|0\d{2,3}-\d{7,8}|[(（]0\d{2,3}[)）] ?\d{7,8}"
        r"|(?:\([2-9]\d\d\) ?|[2-9]\d\d([.-]))\d{3}[.-]\d{4}",
    ),
    _named(
        "password",
        r"pass(?:w(?:or)?d|phrase|code)|pwd|_pass(?![a-z])|\bpass(?=\s?[=:：])"
        r"|\bpw(?=\s?[=:：]|\s(?:is|was)\s)|密[码碼]|口令",
        "pass pwd pw 密码 密碼 口令",
    ),
    _named(
        "api key",
        r"(?:api|access|secret|account)[ _-]?key|(?:private|signing|encryption|master)_key"
        # Other keys often belong to rows and requests.
        rf"|(?-i:(?<=[A-Z0-9])(?<!PUBLIC)_KEY)(?=\s?[=:])(?!\s?[=:]\s?[\"']?{_UUID}\b)"
        r"|密钥|密鑰|金鑰",
        "key 密钥 密鑰 金鑰",
    ),
    _named(
        *("token", "token(?![a-z])|secret", "token secret bearer basic"),
        bare="token|secret|bearer|basic",
    ),
    # The last one: what is redacted before it brings no word for it nearer.
    _number(
        "social security number",
        r"(?!000|666|9)\d{3}([ -]?)(?!00)\d\d\1(?!0000)\d{4}",
        is_secret=True,
    )._replace(find_end=_find_social_security_end),
)
_HINTS = [(hint, place) for place, detector in enumerate(DETECTORS) for hint in detector.hints]
_NUMBERS = {place for place, detector in enumerate(DETECTORS) if not detector.hints}
_KINDS = tuple(dict.fromkeys(detector.kind for detector in DETECTORS))
_MARK = re.compile(rf"\[redacted: ({'|'.join(_KINDS)})\]")
_HAS_NUMBER = re.compile(r"\d[\d ().-]{6,}\d", re.ASCII)  # as every number that is looked for


@dataclass(slots=True)
class DetectedKinds:
    """The kinds of data that a policy found, in the order of the table."""

    redacted: dict[str, int] = field(default_factory=dict)  # and how often
    tagged: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.redacted or self.tagged)

    def label(self, metadata: Mapping[str, Any], earlier: Iterable[str] = ()) -> dict[str, Any]:
        """Return the metadata with the kinds, and those that were redacted or named earlier."""
        labels = {"redacted": [*self.redacted, *earlier], "tagged": [*self.tagged]}
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
        changed = {n: self._protect(v, findings) if v else v for n, v in fields.items()}
        # A hook or an earlier database may have redacted the text already.
        earlier = _MARK.findall("\n".join(v for v in changed.values() if isinstance(v, str)))
        if (findings or earlier) and "metadata" in fields:
            changed["metadata"] = findings.label(changed["metadata"] or {}, earlier)
        return {name: value for name, value in changed.items() if value != fields[name]}

    def _protect(self, value: Any, findings: DetectedKinds, name: str = "") -> Any:
        """Return a value, whose name in an object may say that it is a secret."""
        if isinstance(value, Mapping):
            protected: dict[str, Any] = {}
            for key, item in value.items():
                new = self.redact(key, findings)
                while new in protected:
                    new += "'"
                protected[new] = item if _IDS.fullmatch(key) else self._protect(item, findings, key)
            return protected
        if isinstance(value, list | tuple):
            return type(value)(self._protect(item, findings, name) for item in value)
        if not isinstance(value, str | int) or isinstance(value, bool):
            return value
        # Numbers that are no cards are more often amounts than personal data.
        policy = self if isinstance(value, str) else replace(self, personal="off")
        start, end = (f"{name}=“", "”") if name else ("", "")
        redacted = policy.redact(f"{start}{value}{end}", findings)
        text = redacted.removeprefix(start).removesuffix(end)
        if not redacted.startswith(start):  # the name itself was redacted
            text = policy.redact(str(value))
        return value if text == str(value) else text


SECRETS_ONLY = PrivacyPolicy(personal="off")


def _narrow(text: str) -> str:
    """Return a text of the same length whose letters, digits and spaces have the usual width."""
    return text.translate(_WIDTHS) if _IS_WIDE.search(text) else text


def _detectors_for(text: str) -> Iterable[Detector]:
    """Return the detectors that may find something in a text: none, for most texts."""
    text = _narrow(text)
    lower = text.lower()
    places = {place for hint, place in _HINTS if hint in lower}
    if _HAS_NUMBER.search(text):
        places |= _NUMBERS
    return (DETECTORS[place] for place in sorted(places)) if places else ()


def _replace(detector: Detector, text: str, kinds: dict[str, int], *, keep: bool) -> str:
    parts, place = list[str](), 0
    for match in detector.pattern.finditer(_narrow(text)):
        start = match.end("keep") if match.groupdict().get("keep") else match.start()
        # What was found may contain what looks like the beginning of another value.
        if start < place or (end := detector.find_end(match)) <= start:
            continue
        kinds[detector.kind] = kinds.get(detector.kind, 0) + 1
        parts += (text[place:start], f"[redacted: {detector.kind}]")
        place = end
    return text if keep or not parts else "".join(parts) + text[place:]


def kinds_in(metadata: Mapping[str, Any], name: str = "redacted") -> list[str]:
    """Return the kinds that were redacted or tagged in a row, as its metadata says."""
    labels = metadata.get(SENSITIVE_DATA)
    kinds = labels.get(name) if isinstance(labels, Mapping) else None
    # A caller's own metadata may have this name.
    return [kind for kind in _KINDS if kind in kinds] if isinstance(kinds, list) else []
