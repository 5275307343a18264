"""Who is meant by a message of a group: `@name`, `@id`, `@nickname`, or a name that addresses."""

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
    """A member of a group: a person, or (`ai`) one whose turns a model plays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member_id: Id
    name: Name = Field(min_length=1)
    nicknames: tuple[Name, ...] = Field(default=(), max_length=20)
    ai: bool = False
    instructions: Content = ""  # who an `ai` is, for its own turns alone

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that the member can be called by."""
        return (self.member_id, self.name, *self.nicknames)


class Members:
    """The members of one group, by their ids."""

    def __init__(self, members: Sequence[Member]) -> None:
        if not 1 <= len(members) <= MOST_MEMBERS:
            raise InvalidArgument(
                f"a group of {len(members)} members", hint=f"A group has 1 to {MOST_MEMBERS}"
            )
        self._by_id = {member.member_id: member for member in members}
        if len(self._by_id) < len(members):
            raise InvalidArgument("two members have the same id", hint="Give each its own")

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member:
        """The member of that id; NotFound if the group has none."""
        try:
            return self._by_id[member_id]
        except KeyError:
            raise NotFound(
                f"the group has no member {member_id!r}", hint=f"It has: {', '.join(self._by_id)}"
            ) from None


EVERYBODY = ("all", "everyone", "everybody", "所有人", "全体成员", "大家")
_HAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # scripts in which names stand without blanks
_AFTER_AT = r"[^\S\n]?[\u200b-\u200d\u2060\ufeff]*"
_BEFORE_ADDRESS = re.compile(r"[a-z0-9._%+\-]")  # of mail
_GREETING = r"(?:(?:hey|hi|hello|dear|ok|okay|嗨|喂|你好),? ?)?"
_CLAUSE = rf"(?:^|[\n。!?;]|[.]\s)[^\S\n]{{0,8}}{_GREETING}"
_OWN_WORDS = r"(?!\s*(?:i|i['’]\w+|we|my|our|me)\b|\s*[我俺咱\"“「『])"  # what somebody said, told
_LOOKED_AT = 100  # characters before a comma
_ENDS_A_CLAUSE = r"[。!?.]|$|\n"
# What shows or quotes: bounded, so that no text makes the search long.
_CODE = re.compile(r"(?P<fence>`{3,}|~{3,}).*?(?:(?P=fence)|\Z)|(?P<tick>`+)[^\n]*?(?P=tick)", re.S)
_HOST = r"\b[\w\-]{1,63}(?:\.[\w\-]{1,63}){0,5}\.[a-z]{2,24}/"
_LINK = re.compile(rf"(?:\b[a-z][a-z0-9+.\-]{{1,15}}://|\bwww\.|{_HOST})[^\s<>“”，。]*")
_DAY = r"\d{4}-\d\d-\d\d"
_QUOTED = re.compile(rf"(?P<day>{_DAY})[^\n“”]{{0,12}}: ?“.{{0,320}}?”(?=\n|$)", re.S)


def find_mentions(text: str, members: Iterable[Member]) -> tuple[str, ...]:
    """The ids of the members that a text mentions, in the order of the members.

    A name counts behind an @, whatever its case or width, or where it addresses: before a comma or
    colon at the beginning of a sentence, or behind a comma at the end of one. Of several names that
    fit at a place the longest is meant. A name that is only spoken of is no mention, nor is one in
    code, in a link, or in a dated quotation.
    """
    group = list(members)
    named: dict[str, set[str]] = {}
    for member in group:
        for name in member.names:
            named.setdefault(_key(name), set()).add(member.member_id)
    everybody = {member.member_id for member in group}
    at_names = {**dict.fromkeys(map(_key, EVERYBODY), everybody), **named}
    said = _Said.of(text)
    meant: set[str] = set()
    for at in _ats(said.folded, at_names):
        meant |= at_names[_key(at["name"])]
    for name in _addressed(said, named):
        meant |= named[_key(name)]
    return tuple(member.member_id for member in group if member.member_id in meant)


def without_mentions(text: str, members: Iterable[Member]) -> str:
    """A text without its @mentions, for searching; as it is if nothing else is in it."""
    names = {_key(name) for member in members for name in member.names}
    said = _Said.of(text)
    pieces, end = [], 0
    for at in _ats(said.folded, names | set(map(_key, EVERYBODY))):
        pieces.append(said.text[end : at.start()])
        end = at.end()
    rest = " ".join([*pieces, said.text[end:]]).strip()
    return re.sub(r"[^\S\n]+", " ", rest) if rest else text


def without_names(text: str, members: Iterable[Member]) -> str:
    """A text without its members' names, for telling its language."""
    names = {_key(name) for member in members for name in member.names} | set(EVERYBODY)
    return re.sub(rf"@?(?:{_any(names)})", " ", _fold(text))


@dataclass(frozen=True, slots=True)
class _Said:
    """A text, and the same folded, character by character, without what quotes or shows."""

    text: str
    folded: str

    @classmethod
    def of(cls, text: str) -> "_Said":
        composed = unicodedata.normalize("NFC", text)
        folded = composed.translate(_FOLDS)
        for apart in (_CODE, _LINK, _QUOTED):
            folded = apart.sub(_blank, folded)
        return cls(composed, folded)


def _blank(found: re.Match[str]) -> str:
    kept = found.groupdict().get("day") or ""
    return kept + re.sub(r"[^\n]", " ", found[0][len(kept) :])


class _Folds:
    """Case and width do not matter. One character stays one, so that places stay the same."""

    def __getitem__(self, code: int) -> str:
        return _fold_character(code)


@lru_cache(maxsize=4096)
def _fold_character(code: int) -> str:
    folded = unicodedata.normalize("NFKC", chr(code)).casefold()
    return folded if len(folded) == 1 else chr(code)


_FOLDS = _Folds()


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(_FOLDS)


def _key(name: str) -> str:
    """A name as it is compared: how much space is between its words does not matter."""
    return " ".join(_fold(name).split())


def _ats(folded: str, names: Iterable[str]) -> Iterator[re.Match[str]]:
    """Each @ with a name. A Latin name right behind Latin letters is an address of mail."""
    end = -1
    for found in re.compile(rf"@{_AFTER_AT}(?P<name>{_any(names)})").finditer(folded):
        before = folded[max(found.start() - 1, 0) : found.start()]
        is_mail = _BEFORE_ADDRESS.match(before) and _BEFORE_ADDRESS.match(found["name"])
        if not is_mail or found.start() == end:
            end = found.end()
            yield found


def _addressed(said: _Said, names: Iterable[str]) -> Iterator[str]:
    """Names at the beginning of a sentence before a comma or colon, or at its end behind one."""
    any_name = _any(names)
    # A name and a day is how a quotation begins.
    comma, colon = rf"[,、](?! ?{_DAY})", rf"(?P<colon>:){_OWN_WORDS}"
    opening = re.compile(rf"{_CLAUSE}(?P<name>{any_name}) ?(?:{comma}|{colon})")
    found = list(opening.finditer(said.folded))
    told = [match for match in found if match["colon"]]
    is_transcript = len(told) > 1
    for match in found:
        if not (is_transcript and match["colon"]):
            yield match["name"]
    closing = re.compile(rf", ?(?P<name>{any_name}) ?(?={_ENDS_A_CLAUSE})")
    listed = re.compile(rf"(?:{any_name})$")
    for match in closing.finditer(said.folded):
        asks = said.folded[match.end() : match.end() + 1] in ("?", "!")
        if asks or not _is_listed(said, match.start(), listed):
            yield match["name"]


def _is_listed(said: _Said, comma: int, name_at_the_end: re.Pattern[str]) -> bool:
    """Whether the comma at a place parts two names: “I met Tom, Ann.”"""
    before = slice(max(comma - _LOOKED_AT, 0), comma)
    if name_at_the_end.search(said.folded[before]):
        return True
    words = re.findall(r"[^\W\d_]+|[.!?。！？\n]", said.text[before])
    # A capital in the midst of a sentence is a name.
    return len(words) > 1 and words[-1][0].isupper() and words[-2][0].isalpha()


def _any(names: Iterable[str]) -> str:
    """Any of the names, the longest first; one of a script with blanks must not go on."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(_pattern(name) for name in longest_first)


def _pattern(name: str) -> str:
    words = r"[^\S\n]+".join(map(re.escape, name.split()))
    if not re.search(rf"[^\W{_HAN}]$", name):
        return words
    return rf"{words}(?![^\W{_HAN}]|[\-.][a-z0-9])"
