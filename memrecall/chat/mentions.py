"""Mentions in a group's messages: `@name`, `@id`, `@nickname`, or an addressed name."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from memrecall.errors import InvalidArgument, NotFound
from memrecall.types import Content, Id, Name

MOST_MEMBERS = 200


class Member(BaseModel):
    """A member of a group: a person, or (`ai`) one that a model plays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member_id: Id
    name: Name = Field(min_length=1)
    nicknames: tuple[Name, ...] = Field(default=(), max_length=20)
    ai: bool = False
    instructions: Content = ""  # describe an `ai` member, for its own turns alone

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the member: id, name and nicknames."""
        return (self.member_id, self.name, *self.nicknames)


class Members:
    """The members of one group, by their ids."""

    def __init__(self, members: Sequence[Member]) -> None:
        if not 1 <= len(members) <= MOST_MEMBERS:
            raise InvalidArgument(
                f"a group cannot have {len(members)} members", hint=f"Pass 1 to {MOST_MEMBERS}"
            )
        self._by_id = {member.member_id: member for member in members}
        if len(self._by_id) < len(members):
            raise InvalidArgument("two members have the same id", hint="Make member_id unique")

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member:
        """Return the member with that id; NotFound if there is none."""
        try:
            return self._by_id[member_id]
        except KeyError:
            raise NotFound(
                f"the group has no member {member_id!r}", hint=f"It has: {', '.join(self._by_id)}"
            ) from None

    def get_ai(self, member_id: str) -> Member:
        """Return a member that a model plays; InvalidArgument for a person."""
        member = self.get(member_id)
        if not member.ai:
            raise InvalidArgument(
                f"{member_id!r} is a person, and no model may answer as one",
                hint="Name a member with ai",
            )
        return member


EVERYBODY = ("all", "everyone", "everybody", "所有人", "全体成员", "大家")
_HAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # scripts without spaces between words
_AFTER_AT = r"[^\S\n]?[\u200b-\u200d\u2060\ufeff]*"
_EMAIL_CHARACTER = re.compile(r"[a-z0-9._%+\-]")
_GREETING = r"(?:(?:hey|hi|hello|dear|ok|okay|嗨|喂|你好),? ?)?"
_CLAUSE = rf"(?:^|[\n。!?;]|[.]\s)[^\S\n]{{0,8}}{_GREETING}"
_NOT_REPORTED_SPEECH = (
    r"(?!\s*(?:i|i['’]\w+|we|my|our|me)\b|\s*[我俺咱\"“「『])"  # as in a transcript
)
_CONTEXT = 100  # characters before a comma that are examined
_CLAUSE_END = r"[。!?.]|$|\n"
# Code, links and quotations; the lengths are bounded so that no text makes matching slow.
_CODE = re.compile(r"(?P<fence>`{3,}|~{3,}).*?(?:(?P=fence)|\Z)|(?P<tick>`+)[^\n]*?(?P=tick)", re.S)
_HOST = r"\b[\w\-]{1,63}(?:\.[\w\-]{1,63}){0,5}\.[a-z]{2,24}/"
_LINK = re.compile(rf"(?:\b[a-z][a-z0-9+.\-]{{1,15}}://|\bwww\.|{_HOST})[^\s<>“”，。]*")
_DAY = r"\d{4}-\d\d-\d\d"
_QUOTED = re.compile(rf"(?P<day>{_DAY})[^\n“”]{{0,12}}: ?“.{{0,320}}?”(?=\n|$)", re.S)


def find_mentions(text: str, members: Iterable[Member]) -> tuple[str, ...]:
    """Return the ids of the members that a text mentions, in the order of the members.

    A name counts after an @, in any case or width, or where it addresses someone: before a comma
    or colon at the beginning of a sentence, or after a comma at its end. The longest matching name
    wins. Other uses of a name do not count, nor do names in code, links or dated quotations.
    """
    group = list(members)
    by_name: dict[str, set[str]] = {}
    for member in group:
        for name in member.names:
            by_name.setdefault(_key(name), set()).add(member.member_id)
    everybody = {member.member_id for member in group}
    at_names = {**dict.fromkeys(map(_key, EVERYBODY), everybody), **by_name}
    folded = _FoldedText.of(text)
    mentioned: set[str] = set()
    for match in _find_at_names(folded.folded, at_names):
        mentioned |= at_names[_key(match["name"])]
    for name in _find_addressed_names(folded, by_name):
        mentioned |= by_name[_key(name)]
    return tuple(member.member_id for member in group if member.member_id in mentioned)


def remove_mentions(text: str, members: Iterable[Member]) -> str:
    """Return a text without its @mentions, or unchanged if nothing else is in it."""
    names = {_key(name) for member in members for name in member.names}
    folded = _FoldedText.of(text)
    pieces, end = [], 0
    for match in _find_at_names(folded.folded, names | set(map(_key, EVERYBODY))):
        pieces.append(folded.text[end : match.start()])
        end = match.end()
    rest = " ".join([*pieces, folded.text[end:]]).strip()
    return re.sub(r"[^\S\n]+", " ", rest) if rest else text


def remove_names(text: str, members: Iterable[Member]) -> str:
    """Return a text without the members' names, for detecting its language."""
    names = {_key(name) for member in members for name in member.names} | set(EVERYBODY)
    return re.sub(rf"@?(?:{_any_of(names)})", " ", _fold_in_place(text))


@dataclass(frozen=True, slots=True)
class _FoldedText:
    """A text, and the same folded character by character, with code and quotations blanked."""

    text: str
    folded: str

    @classmethod
    def of(cls, text: str) -> "_FoldedText":
        composed = unicodedata.normalize("NFC", text)
        folded = composed.translate(FOLDS)
        for pattern in (_CODE, _LINK, _QUOTED):
            folded = pattern.sub(_blank, folded)
        return cls(composed, folded)


def _blank(match: re.Match[str]) -> str:
    day = match.groupdict().get("day") or ""
    return day + re.sub(r"[^\n]", " ", match[0][len(day) :])


class _Folds:
    """A translation table that folds case and width and keeps every position."""

    def __getitem__(self, code: int) -> str:
        return _fold_character(code)


@lru_cache(maxsize=4096)
def _fold_character(code: int) -> str:
    folded = unicodedata.normalize("NFKC", chr(code)).casefold()
    return folded if len(folded) == 1 else chr(code)


FOLDS = _Folds()


def _fold_in_place(text: str) -> str:
    """Return a text without differences of case and width, each character in its place."""
    return unicodedata.normalize("NFC", text).translate(FOLDS)


def _key(name: str) -> str:
    """Return a name in the form that is compared, with single spaces."""
    return " ".join(_fold_in_place(name).split())


def _find_at_names(folded: str, names: Iterable[str]) -> Iterator[re.Match[str]]:
    """Yield each @ with a name, except in email addresses."""
    end = -1
    for match in re.compile(rf"@{_AFTER_AT}(?P<name>{_any_of(names)})").finditer(folded):
        before = folded[max(match.start() - 1, 0) : match.start()]
        is_email = _EMAIL_CHARACTER.match(before) and _EMAIL_CHARACTER.match(match["name"])
        if not is_email or match.start() == end:
            end = match.end()
            yield match


def _find_addressed_names(text: _FoldedText, names: Iterable[str]) -> Iterator[str]:
    """Yield names that open a sentence before a comma or colon, or close it after a comma."""
    any_name = _any_of(names)
    # A quotation begins with a name and a day.
    comma, colon = rf"[,、](?! ?{_DAY})", rf"(?P<colon>:){_NOT_REPORTED_SPEECH}"
    opening = re.compile(rf"{_CLAUSE}(?P<name>{any_name}) ?(?:{comma}|{colon})")
    matches = list(opening.finditer(text.folded))
    is_transcript = sum(match["colon"] is not None for match in matches) > 1
    for match in matches:
        if not (is_transcript and match["colon"]):
            yield match["name"]
    closing = re.compile(rf", ?(?P<name>{any_name}) ?(?={_CLAUSE_END})")
    listed = re.compile(rf"(?:{any_name})$")
    for match in closing.finditer(text.folded):
        is_emphatic = text.folded[match.end() : match.end() + 1] in ("?", "!")
        if is_emphatic or not _is_list(text, match.start(), listed):
            yield match["name"]


def _is_list(text: _FoldedText, comma: int, name_at_end: re.Pattern[str]) -> bool:
    """Return True if a comma separates two names: “I met Tom, Ann.”"""
    before = slice(max(comma - _CONTEXT, 0), comma)
    if name_at_end.search(text.folded[before]):
        return True
    words = re.findall(r"[^\W\d_]+|[.!?。！？\n]", text.text[before])
    # A capitalised word inside a sentence is a name.
    return len(words) > 1 and words[-1][0].isupper() and words[-2][0].isalpha()


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern of any of the names, longest first, that ends at a word's end."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(_pattern(name) for name in longest_first)


def _pattern(name: str) -> str:
    words = r"[^\S\n]+".join(map(re.escape, name.split()))
    if not re.search(rf"[^\W{_HAN}]$", name):
        return words
    return rf"{words}(?![^\W{_HAN}]|[\-.][a-z0-9])"
