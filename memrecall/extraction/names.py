"""Whether two names may be one entity: only by their spelling, or because somebody said so."""

import re
from collections.abc import Collection, Iterator

from memrecall.text.normalize import normalize, strip_accents

Alias = frozenset[str]

_TITLE = re.compile(
    r"^(?:mr|mrs|ms|miss|dr|prof|professor|sir|uncle|aunt|auntie)\.? +", re.IGNORECASE
)
_LATIN = r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,2}"
_HAN = "[\u4e00-\u9fff]{2,4}"
_SAID = (
    re.compile(
        rf"\b(?P<one>{_LATIN}),? (?:\(|aka |a\.k\.a\. |also known as |or |better known as "
        rf"|that is,? )(?P<other>{_LATIN})\b"
    ),
    re.compile(
        rf"\b(?P<one>{_LATIN}) is (?:just )?(?:short for|my nickname for|the same (?:person "
        rf")?as|really|actually) (?P<other>{_LATIN})\b"
    ),
    re.compile(
        rf"(?P<one>{_HAN}|{_LATIN})(?:就是|也就是|又叫|又名|外号|小名|昵称|大名|本名|的小名叫"
        rf"|的大名叫|的外号叫|也叫)(?:是|叫)?(?P<other>{_HAN}|{_LATIN})"
    ),
    re.compile(
        rf"(?P<one>{_HAN}|{_LATIN})[（(](?:也叫|即|小名|外号|昵称)?(?P<other>{_HAN}|{_LATIN})[）)]"
    ),
)


def fold_name(name: str) -> str:
    """A name in the form under which spellings of it are equal: case, width, accents, marks."""
    bare = _TITLE.sub("", normalize(name).strip())
    return re.sub(r"[\W_]+", "", strip_accents(bare.casefold()))


def may_be_one(one: str, other: str, aliases: Collection[Alias] = ()) -> bool:
    """Whether two names may mean one entity.

    Case, width, script and titles do not matter. 李老师 and 李明, or Bob and Robert, are one only
    if `aliases` (what `aliases_in` found) says so, directly or by way of others.
    """
    first, second = fold_name(one), fold_name(other)
    if not first or not second:
        return False
    reached, last = {first}, set[str]()
    groups = [{fold_name(name) for name in alias} for alias in aliases]
    while reached != last:
        last = set(reached)
        reached |= {name for group in groups if group & last for name in group}
    return second in reached


def aliases_in(text: str) -> Iterator[Alias]:
    """The pairs of names that a text says are one: 李老师就是李明, "Robert, also known as Bob"."""
    for pattern in _SAID:
        for match in pattern.finditer(text):
            pair = frozenset({match["one"], match["other"]})
            if len(pair) == 2:
                yield pair
