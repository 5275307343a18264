"""Language tables: words, patterns and slot patterns, loaded from text files.

The tables of the rules are in `tables/`; those for messages and conflicts, which models need too,
are in `memrecall/extraction/tables`.

The files are made of sections. A line indented by four spaces continues a row; `#` starts a comment
line. Patterns are regular expressions with four shorthands; English ones ignore case:

    (a|b)          a group that captures nothing
    (name:…)       a named group
    {word}         a row of [words], a word set or all kinship words, as one group
    …              in Chinese tables, any character but a comma
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, cast

from memrecall.extraction.protocol import EntityType, FactType
from memrecall.extraction.rules.statements import SlotPattern

_T = TypeVar("_T")
_PACKAGES = ("memrecall.extraction", "memrecall.extraction.rules")
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<named>\((?P<group>[a-z_]+):)|(?P<open>\((?!\?))"
    r"|(?P<any>…)|\{(?P<word>[a-z_]+)\}"
)
_SLOT = re.compile(
    r"(?P<type>\w+)(?:\.(?P<field>\w+))?(?: >(?P<relation>\w+)(?::(?P<kind>\w+))?)?"
    r"(?: \[(?P<flags>[\w ]+)\])?  "
)


class LanguageTable:
    """The tables of one language; patterns are compiled when they are first used."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._sections = _read_sections(language)
        self._built: dict[tuple[str, str], Any] = {}
        self._words = dict(self.rows("words"))
        for name, text in self.rows("sets"):
            self.define(name, text.split())
        self.define("kinship", self.mapping("kinship"))

    def define(self, name: str, words: Iterable[str]) -> None:
        """Make words available to patterns as `{name}`."""
        self._words[name] = "|".join(sorted(words, key=len, reverse=True))

    def lines(self, section: str) -> list[str]:
        """Return the rows of a section as they are written."""
        return self._sections.get(section, [])

    def entries(self, section: str) -> list[str]:
        """Return the entries of a section, which are separated by lines and semicolons."""
        return [entry for row in self.lines(section) for entry in row.split(";")]

    def rows(self, section: str) -> list[tuple[str, str]]:
        """Return the rows of a section as pairs of name and text."""
        pairs = (row.split(" = ", 1) for row in self.lines(section))
        return [(name, text) for name, text in pairs]

    def words(self, name: str) -> frozenset[str]:
        """Return a word set."""
        return self._once("sets", name, lambda: frozenset(dict(self.rows("sets"))[name].split()))

    def mapping(self, name: str) -> dict[str, str]:
        """Return a map from each listed word to the name of its row."""

        def build() -> dict[str, str]:
            separator = ", " if name == "nouns" else " "
            rows = (entry.split(" = ") for entry in self.entries(f"map {name}"))
            return {word: key.strip() for key, text in rows for word in text.split(separator)}

        return self._once("map", name, build)

    def pattern(self, name: str) -> re.Pattern[str]:
        """Return a pattern; one that the language lacks matches nothing."""
        return self._once(
            "patterns", name, lambda: self._compile(dict(self.rows("patterns")).get(name, "(?!)"))
        )

    def write(self, name: str, /, **values: str) -> str:
        """Return a template with its values filled in."""
        return dict(self.rows("templates"))[name].format(**values)

    def search(self, name: str, text: str) -> re.Match[str] | None:
        """Search a text for a pattern."""
        return self.pattern(name).search(text)

    def match(self, name: str, text: str) -> re.Match[str] | None:
        """Match a pattern at the start of a text."""
        return self.pattern(name).match(text)

    def fullmatch(self, name: str, text: str) -> re.Match[str] | None:
        """Match a pattern against a whole text."""
        return self.pattern(name).fullmatch(text)

    def remove(self, name: str, text: str) -> str:
        """Return the text without what a pattern matches."""
        return self.pattern(name).sub("", text)

    def patterns(self, section: str) -> list[tuple[str, re.Pattern[str]]]:
        """Return the named patterns of a section, in order."""
        return self._once(
            section, "", lambda: [(name, self._compile(text)) for name, text in self.rows(section)]
        )

    def rewrites(self, section: str) -> list[tuple[re.Pattern[str], str]]:
        """Return the substitutions of a section, in order; `{name}` inserts a named group."""

        def build() -> list[tuple[re.Pattern[str], str]]:
            rows = (row.split(" =>", 1) for row in self.lines(f"rewrite {section}"))
            return [
                (self._compile(text), re.sub(r"\{(\w+)\}", r"\\g<\1>", template[1:].strip('"')))
                for text, template in rows
            ]

        return self._once("rewrite", section, build)

    def rewrite(self, section: str, text: str) -> str:
        """Apply the substitutions of a section in order."""
        for pattern, template in self.rewrites(section):
            if pattern.search(text):  # cheaper than to expand the template of each
                text = pattern.sub(template, text)
        return text

    def slots(self, section: str) -> tuple[SlotPattern, ...]:
        """Return the slot patterns of a section, in order."""
        rows = self.lines(f"slots {section}")
        return self._once("slots", section, lambda: tuple(map(self._read_slot, rows)))

    def _read_slot(self, row: str) -> SlotPattern:
        head = _SLOT.match(row)
        pattern, arrow, sentence = row[head.end() :].partition(" => ") if head else ("", "", "")
        if head is None or not arrow:
            raise ValueError(f"{row!r} is no slot: write type.slot >relation:kind [flags]  … => …")
        return SlotPattern(
            self._compile(pattern),
            sentence,
            cast(FactType, head["type"]),
            head["field"],
            head["relation"],
            cast(EntityType, head["kind"] or "thing"),
            **dict.fromkeys((head["flags"] or "").split(), True),
        )

    def _compile(self, text: str) -> re.Pattern[str]:
        return re.compile(self._expand(text), re.IGNORECASE if self.language == "en" else 0)

    def _expand(self, text: str) -> str:
        def replace(token: re.Match[str]) -> str:
            if token["named"]:
                return f"(?P<{token['group']}>"
            if token["word"]:
                return f"(?:{self._expand(self._words[token['word']])})"
            return "(?:" if token["open"] else "[^，]" if token["any"] else token.group()

        return _TOKEN.sub(replace, text)

    def _once(self, section: str, name: str, build: Callable[[], _T]) -> _T:
        key = (section, name)
        if key not in self._built:
            self._built[key] = build()
        value: _T = self._built[key]
        return value


def _read_sections(folder: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    rows: list[str] = []
    separator = ""
    packages = [package for package in _PACKAGES if (files(package) / "tables" / folder).is_dir()]
    paths = (
        path for package in packages for path in (files(package) / "tables" / folder).iterdir()
    )
    for file in sorted(paths, key=lambda path: path.name):
        for line in file.read_text("utf-8").splitlines():
            if line.startswith("["):
                rows = sections.setdefault(line.strip("[]"), [])
                separator = " " if line.startswith(("[sets", "[map")) else ""
            elif line.startswith("    "):
                rows[-1] += separator + line[4:]
            elif line and not line.startswith("#"):
                rows.append(line)
    return sections


@cache
def load_table(language: str) -> LanguageTable:
    """Return the tables of a language ("en", "zh"), or those of both ("shared")."""
    return LanguageTable(language)
