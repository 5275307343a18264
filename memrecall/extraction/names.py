"""Names of entities: spellings that are equal, and aliases that a text states."""

import re
from collections.abc import Collection, Iterator

from memrecall.text.normalize import normalize, strip_accents

Alias = frozenset[str]

_TITLE = re.compile(
    r"^(?:mr|mrs|ms|miss|dr|prof|professor|sir|uncle|aunt|auntie)\.? +", re.IGNORECASE
)
_LATIN = r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,2}"
_HAN = "[\u4e00-\u9fff]{2,4}"
_ALIAS_PATTERNS = (
    re.compile(
        rf"\b(?P<first>{_LATIN}),? (?:\(|aka |a\.k\.a\. |also known as |or |better known as "
        rf"|that is,? )(?P<second>{_LATIN})\b"
    ),
    re.compile(
        rf"\b(?P<first>{_LATIN}) is (?:just )?(?:short for|my nickname for|the same (?:person "
        rf")?as|really|actually) (?P<second>{_LATIN})\b"
    ),
    re.compile(
        rf"(?P<first>{_HAN}|{_LATIN})(?:就是|也就是|又叫|又名|外号|小名|昵称|大名|本名|的小名叫"
        rf"|的大名叫|的外号叫|也叫)(?:是|叫)?(?P<second>{_HAN}|{_LATIN})"
    ),
    re.compile(
        rf"(?P<first>{_HAN}|{_LATIN})[（(](?:也叫|即|小名|外号|昵称)?(?P<second>{_HAN}|{_LATIN})[）)]"
    ),
)


def fold_name(name: str) -> str:
    """Return a name without differences of case, width, accents and punctuation."""
    bare = _TITLE.sub("", normalize(name).strip())
    return re.sub(r"[\W_]+", "", strip_accents(bare.casefold()))


def may_be_one(one: str, other: str, aliases: Collection[Alias] = ()) -> bool:
    """Return True if two names may mean one entity.

    Case, width, script and titles do not matter. 李老师 and 李明, or Bob and Robert, are one entity
    only if `aliases` (from `aliases_in`) connects them, directly or through other names.
    """
    first, second = fold_name(one), fold_name(other)
    if not first or not second:
        return False
    connected, previous = {first}, set[str]()
    groups = [{fold_name(name) for name in alias} for alias in aliases]
    while connected != previous:
        previous = set(connected)
        connected |= {name for group in groups if group & previous for name in group}
    return second in connected


def aliases_in(text: str) -> Iterator[Alias]:
    """Yield the pairs of names that a text equates: "Robert, also known as Bob", 李老师就是李明."""
    for pattern in _ALIAS_PATTERNS:
        for match in pattern.finditer(text):
            pair = frozenset({match["first"], match["second"]})
            if len(pair) == 2:
                yield pair
