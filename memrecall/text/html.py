"""Pieces of HTML for notebooks, which stand alone and do nothing.

Styles are inline, colours are inherited or work on light and dark, there is no script and nothing
is loaded. Text is escaped where it is put in: only what was made here is taken as HTML. Without
styles, as some viewers show it, the text still reads well.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

Say = Callable[[str], str]
Labels = Mapping[str, tuple[str, str]]  # in English and in Chinese

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

_LONGEST = 2_000  # characters of one text: a notebook keeps what it shows
_SHARED: Labels = {"cut": ("characters in all", "字，已截短")}


class Html(str):
    """HTML made here. A plain string is text, and escaped where it is put in."""

    __slots__ = ()


def tag(name: str, *parts: str, style: str = "") -> Html:
    """An element around parts: HTML as it is, text escaped."""
    inner = "".join(part if isinstance(part, Html) else escape(part) for part in parts)
    styled = f' style="{escape(style)}"' if style else ""
    return Html(f'<{name} dir="auto"{styled}>{inner}</{name}>')


def box(*parts: str) -> Html:
    """What one object shows."""
    return tag("div", *parts, style=BOX)


def labels(table: Labels, language: str) -> Say:
    """The labels of a table in a language, and those that all share."""
    every = {**_SHARED, **table}
    return lambda name: every[name][language == "zh"]


def clip(text: str, say: Say) -> str:
    """The text, or if it is very long its beginning and how long it is."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text):,} {say('cut')})"


def short_time(told: str | None) -> str:
    """A time of RFC 3339 to the minute, as people read it in a list."""
    return (told or "")[:16].replace("T", " ")


def colour_of(share: float) -> str:
    """Green, amber or red for what lies between 0 and 1."""
    if share >= 0.6:
        return GREEN
    return AMBER if share >= 0.3 else RED


def meter(share: float, colour: str) -> Html:
    """A bar that is so full."""
    width = f"width:{round(share * 100)}%;height:100%;background:{colour};border-radius:3px"
    track = "display:inline-block;width:9em;height:.45em;border-radius:3px;overflow:hidden"
    track += ";background:rgba(128,128,128,.25);vertical-align:middle;margin:0 .6em"
    return tag("span", tag("span", style=f"display:block;{width}"), style=track)


def warning(*parts: str) -> Html:
    """What a reader should not miss."""
    return tag("div", *parts, style=f"{TEXT};color:{AMBER}")


def note(*parts: str) -> Html:
    """A line that steps back."""
    return tag("div", *parts, style=f"{LINE};{DIM}")


def folded(head: str, *parts: str) -> Html:
    """Parts that are shown when somebody clicks."""
    return tag("details", tag("summary", head, style=f"{DIM};cursor:pointer"), *parts)


def cell(text: str, style: str = NARROW) -> Html:
    """A cell of a table; long words break only in a wide one."""
    return tag("td", text, style=style)


def score_cell(score: float | None) -> Html:
    """A score between 0 and 1, in its colour; an empty cell if there is none."""
    if score is None:
        return cell("")
    return cell(f"{score:.2f}", f"{NARROW};color:{colour_of(score)}")


def table(rows: Iterable[Sequence[Html]], heads: Sequence[str] = ()) -> Html:
    """Rows of cells, perhaps under headings."""
    head = [tag("th", name, style=f"{NARROW};{DIM};font-weight:400") for name in heads]
    lines = ([head] if head else []) + [list(row) for row in rows]
    body = (tag("tr", *cells) for cells in lines)
    return tag("table", *body, style="border-collapse:collapse;margin:.3em 0")
