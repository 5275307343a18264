"""Chinese words by their looks: names of persons, places, nouns and times."""

from collections.abc import Iterator

from memrecall.extraction.rules.tables import load_table

ZH = load_table("zh")

_MAX_NAME = 4
_MAX_NOUN = 8


def _tags(text: str) -> Iterator[tuple[str, str]]:
    from rjieba import tag  # Loading its dictionary takes a moment.

    return iter(tag(text))


def _kinds(text: str) -> list[str]:
    return [kind for _, kind in _tags(text)]


def is_name(text: str) -> bool:
    """Return True if a short text looks like a person's name: 李明, 小王, 张教授."""
    if text.isascii():
        return text[:1].isupper() and text.replace(" ", "").isalpha()
    if text in ZH.words("not_names") or len(text) > _MAX_NAME or ZH.search("never_in_names", text):
        return False
    if ZH.fullmatch("titled_name", text):
        return True
    looks_like_name = ZH.fullmatch("full_name", text) or ZH.fullmatch("familiar_name", text)
    return bool(looks_like_name) and _is_no_common_word(text)


def _is_no_common_word(text: str) -> bool:
    from rjieba import has_word

    # The segmenter knows common words; an unknown word with a surname is a name.
    return _kinds(text) == ["nr"] or not has_word(text)


def opens_with_name(text: str, name: str) -> bool:
    """Return True if a clause begins with this name."""
    if not is_name(name):
        return False
    if name.isascii() or ZH.fullmatch("titled_name", name):
        return True
    return next(_tags(text), ("", "")) == (name, "nr")


def is_ordinary_word(text: str) -> bool:
    """Return True if a word in the place of a name is of another kind: 终于, 特别."""
    if len(text) == 2 and text[0] == text[1]:
        return False  # Names such as 朵朵 and 乐乐.
    kinds = _kinds(text)
    return not text.isascii() and len(kinds) == 1 and kinds[0][:1] not in "naixzjl"


def starts_with_noun(text: str) -> bool:
    """Return True if a clause opens with a thing or a person, so that it has a subject."""
    _, kind = next(_tags(text[:12]), ("", ""))
    return kind.startswith(("n", "r")) and not kind.startswith("nt")


def has_more_than_time(text: str) -> bool:
    """Return True if a text has words beyond times, numbers and measures."""
    return any(kind[:1] not in "tmqfux" for kind in _kinds(text))


def is_bare_noun(text: str) -> bool:
    """Return True if a clause only names somebody or something: 小温, 另一家店."""
    # 换公司了 states something, whatever its words are tagged.
    if text.endswith("了") or len(text) > _MAX_NOUN:
        return False
    kinds = _kinds(text)
    return kinds != [] and all(kind[0] in "nrmqbuj" for kind in kinds)


def is_place(text: str) -> bool:
    """Return True if a word is the name of a place."""
    return _kinds(text) == ["ns"]
