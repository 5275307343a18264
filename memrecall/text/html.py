"""Self-contained HTML for notebooks.

Styles are inline, colours are inherited or work on light and dark, there is no script and nothing
is loaded. Text is escaped on insertion; only `Html` is not. The text is readable without styles,
which some viewers drop.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from memrecall.text.language import language_of
from memrecall.text_length import ELLIPSIS, truncate_text

Say = Callable[[str], str]
Labels = Mapping[str, tuple[str, str]]  # English, Chinese

BOX = "max-width:56em;line-height:1.5;text-align:left"
DIM = "opacity:.65;font-size:.92em"
LINE = "margin:.15em 0"
TEXT = "margin:.15em 0;white-space:pre-wrap;overflow-wrap:anywhere"
TITLE = f"{TEXT};font-weight:600"
QUOTE = "margin:.7em 0;padding:.1em 0 .1em .8em;border-left:3px solid rgba(128,128,128,.4)"
CODE = "font-family:ui-monospace,monospace;font-size:.88em"
CELL = "padding:.1em .8em .1em 0;vertical-align:top;text-align:left"
NARROW = f"{CELL};white-space:nowrap"
WIDE = f"{CELL};white-space:normal;overflow-wrap:anywhere"
GREEN, AMBER, RED = "#2f9e5c", "#b8861b", "#cb5248"

_MAX_LENGTH = 2_000  # characters of one text: notebooks store their output
_CUT = {
    "en": "{ellipsis} ({count:,} characters in all)",
    "zh": "{ellipsis}（共 {count:,} 字，已截短）",
}


class Html(str):
    """HTML made in this module; any other string is text and escaped on insertion."""

    __slots__ = ()


def tag(name: str, *parts: str, style: str = "") -> Html:
    """Return an element around parts, which are HTML or text to escape."""
    inner = "".join(part if isinstance(part, Html) else escape(part) for part in parts)
    style_attribute = f' style="{escape(style)}"' if style else ""
    return Html(f'<{name} dir="auto"{style_attribute}>{inner}</{name}>')


def box(*parts: str) -> Html:
    """Return the outer element of an object's view."""
    return tag("div", *parts, style=BOX)


def labels(table: Labels, language: str) -> Say:
    """Return a lookup of the table's labels in a language."""
    return lambda name: table[name][language == "zh"]


def clip(text: str) -> str:
    """Return the text, or the start and length of a very long one."""
    cut = _CUT[language_of(text)].format(ellipsis=ELLIPSIS, count=len(text))
    return truncate_text(text, _MAX_LENGTH, cut)


def colour_of(share: float) -> str:
    """Return green, amber or red for a share between 0 and 1."""
    if share >= 0.6:
        return GREEN
    return AMBER if share >= 0.3 else RED


def meter(share: float, colour: str) -> Html:
    """Return a bar filled to a share."""
    width = f"width:{round(share * 100)}%;height:100%;background:{colour};border-radius:3px"
    track = "display:inline-block;width:9em;height:.45em;border-radius:3px;overflow:hidden"
    track += ";background:rgba(128,128,128,.25);vertical-align:middle;margin:0 .6em"
    return tag("span", tag("span", style=f"display:block;{width}"), style=track)


def warning(*parts: str) -> Html:
    """Return a highlighted warning."""
    return tag("div", *parts, style=f"{TEXT};color:{AMBER}")


def note(*parts: str) -> Html:
    """Return a line of secondary text."""
    return tag("div", *parts, style=f"{LINE};{DIM}")


def folded(head: str, *parts: str) -> Html:
    """Return parts that are shown on a click."""
    return tag("details", tag("summary", head, style=f"{DIM};cursor:pointer"), *parts)


def cell(text: str, style: str = NARROW) -> Html:
    """Return a table cell; long words break only in the wide style."""
    return tag("td", text, style=style)


def score_cell(score: float | None) -> Html:
    """Return a cell with a coloured score, empty if there is none."""
    if score is None:
        return cell("")
    return cell(f"{score:.2f}", f"{NARROW};color:{colour_of(score)}")


def table(rows: Iterable[Sequence[Html]], heads: Sequence[str] = ()) -> Html:
    """Return a table of rows, with optional headings."""
    head = [tag("th", name, style=f"{NARROW};{DIM};font-weight:400") for name in heads]
    lines = ([head] if head else []) + [list(row) for row in rows]
    body = (tag("tr", *cells) for cells in lines)
    return tag("table", *body, style="border-collapse:collapse;margin:.3em 0")
