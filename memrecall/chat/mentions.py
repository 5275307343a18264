"""Who is meant by a message of a group: `@name`, `@id`, `@nickname`, or a name that addresses."""

import re
import unicodedata
from collections.abc import Iterable

from memrecall.chat.members import Member

EVERYBODY = ("all", "everyone", "everybody", "所有人", "全体成员", "大家")
_BEFORE_AT = r"(?<![a-z0-9._%+\-])"  # else it is an address of mail
_CLAUSE = r"(?:^|[\n。！？!?;；]|[.]\s)\s*"


def find_mentions(text: str, members: Iterable[Member]) -> tuple[str, ...]:
    """The ids of the members that a text mentions, in the order of the members.

    A name counts behind an @, whatever its case or width, or where it addresses: before a comma or
    colon at the beginning of a sentence, or behind a comma at the end of one. Of several names that
    fit at a place the longest is meant. A name that is only spoken of is no mention.
    """
    group = list(members)
    named: dict[str, set[str]] = {}
    for member in group:
        for name in member.names:
            named.setdefault(_fold(name), set()).add(member.member_id)
    everybody = {member.member_id for member in group}
    at_names = {**dict.fromkeys(EVERYBODY, everybody), **named}
    folded = _fold(text)
    meant: set[str] = set()
    for found in _at(at_names).finditer(folded):
        meant |= at_names[found[1]]
    for found in _addressed(named).finditer(folded):
        meant |= named[found[1] or found[2]]
    return tuple(member.member_id for member in group if member.member_id in meant)


def without_mentions(text: str, members: Iterable[Member]) -> str:
    """A text without its @mentions, for searching; as it is if nothing else is in it."""
    names = [name for member in members for name in member.names]
    at = re.compile(rf"(?<![a-z0-9._%+\-])[@＠]\s?(?:{_any([*names, *EVERYBODY])})", re.IGNORECASE)
    rest = at.sub(" ", text).strip()
    return re.sub(r"[^\S\n]+", " ", rest) if rest else text


def _fold(text: str) -> str:
    """Case and width do not matter, nor how much space is between the words of a name."""
    return re.sub(r"[^\S\n]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()


def _at(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"{_BEFORE_AT}@ ?({_any(names)})")


def _addressed(names: Iterable[str]) -> re.Pattern[str]:
    """At the beginning of a sentence and before a comma or colon, or at the end behind a comma."""
    any_name = _any(names)
    return re.compile(rf"{_CLAUSE}({any_name}) ?[,:、]|[,] ?({any_name}) ?(?=[。！？!?.]|$|\n)")


def _any(names: Iterable[str]) -> str:
    """Any of the names, the longest first; a Latin one must not go on."""
    longest_first = sorted(names, key=len, reverse=True)
    return "|".join(re.escape(name) + _ending(name) for name in longest_first)


def _ending(name: str) -> str:
    return r"(?![a-z0-9_])" if re.search(r"[a-z0-9_]$", name, re.IGNORECASE) else ""
