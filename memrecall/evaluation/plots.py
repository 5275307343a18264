"""Plots that stand alone: in an image with paper of its own, or inside what a notebook shows.

A notebook has no style sheet of ours, and one of its own classes may be called as ours are. So
every class becomes an inline style here.
"""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from unicodedata import east_asian_width

DAY = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948")
NIGHT = ("#3987e5", "#d95926", "#199e70", "#c98500", "#d55181", "#2f9a3c", "#9085e9", "#e66767")


def _colours(palette: tuple[str, ...]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(palette))


_CLASSES = "".join(
    f".s{at}{{stroke:var(--c{at});fill:var(--c{at})}}.b{at}{{background:var(--c{at})}}"
    for at in range(len(DAY))
)

STYLE = (
    ":root{color-scheme:light dark;--paper:#fcfcfb;--ink:#1a1a19;--soft:#5f5e5a;--line:#e4e3df;"
    f"{_colours(DAY)}}}"
    "@media (prefers-color-scheme:dark){:root{--paper:#1a1a19;--ink:#f2f1ee;--soft:#a5a49e;"
    f"--line:#383835;{_colours(NIGHT)}}}}}"
    "body{margin:0;background:var(--paper);color:var(--ink);"
    "font:15px/1.5 system-ui,'Noto Sans CJK SC',sans-serif}"
    "main{max-width:1120px;margin:0 auto;padding:24px 20px 60px}"
    "h1{font-size:26px;margin:8px 0 16px}h2{font-size:17px;margin:0}"
    "main>h2{margin:36px 0 4px}p{margin:2px 0 10px;color:var(--soft);font-size:13.5px}"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));"
    "gap:36px 32px;margin-top:32px;align-items:start}"
    "figure{margin:0;min-width:0}svg{width:100%;height:auto;display:block}"
    ".legend{list-style:none;padding:0;margin:0 0 8px;display:flex;flex-wrap:wrap;gap:2px 16px;"
    "font-size:13px}"
    ".swatch{display:inline-block;width:10px;height:10px;border-radius:50%;margin-right:7px}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px;min-width:100%}"
    "th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--line);"
    "white-space:nowrap;font-weight:400}thead th{color:var(--soft)}tbody th{font-weight:600}"
    ".numbers td{font-variant-numeric:tabular-nums}.interval{color:var(--soft);font-size:12.5px;"
    "margin-left:6px}"
    "svg text{stroke:none;font-size:12px}.tick{fill:var(--soft)}.label{fill:var(--ink)}"
    ".grid{stroke:var(--line);stroke-width:1}.diagonal{stroke:var(--soft);stroke-dasharray:4 4}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.whisker{stroke-width:2}"
    ".dot{stroke:var(--paper);stroke-width:1.5}"
    f"{_CLASSES}"
)


WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 12, 44
NAMES = 190  # width of the names beside a chart of intervals
ROW = 16  # height of one run in a chart of intervals
_LONGEST_LABEL = 24

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one run; `colour` counts from 0."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis says and where its marks are."""

    label: str
    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """From values to places between start and end."""
        read = math.log10 if self.log else float
        low, high = read(self.low), read(self.high)
        span = (high - low) or 1.0
        return lambda value: start + (read(value) - low) / span * (end - start)


@dataclass(frozen=True, slots=True)
class Whisker:
    """A value with its interval."""

    name: str
    colour: int
    value: float
    low: float
    high: float


def share_axis(label: str) -> Axis:
    """An axis from 0 to 1."""
    return Axis(label, 0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))


def log_axis(label: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis around some values, with marks at 1, 2, 5, 10 …"""
    low, high = max(min(values), 1e-6), max(*values, 1e-6)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    first = max((mark for mark in marks if mark <= low), default=low)
    last = min((mark for mark in marks if mark >= high), default=high)
    inside = [mark for mark in marks if first <= mark <= last]
    few = inside if len(inside) <= 8 else [mark for mark in inside if _is_power(mark)]
    return Axis(label, first, last if last > first else first * 10, few, log=True)


def _is_power(mark: float) -> bool:
    return math.isclose(math.log10(mark) % 1, 0, abs_tol=1e-9)


def line_chart(
    title: str, across: Axis, up: Axis, series: Sequence[Series], *, diagonal: bool = False
) -> str:
    """Lines over two axes; a diagonal is where predictions come true."""
    x = across.scale(LEFT, WIDTH - RIGHT)
    y = up.scale(HEIGHT - BOTTOM, TOP)
    parts = [*_horizontal_marks(up, y), *_vertical_marks(across, x, HEIGHT - BOTTOM)]
    if diagonal:
        ends = f'x1="{x(0):.1f}" y1="{y(0):.1f}" x2="{x(1):.1f}" y2="{y(1):.1f}"'
        parts.append(f'<line class="diagonal" {ends}/>')
    for each in series:
        parts += _line(each, x, y)
    parts.append(_across_label(across.label, HEIGHT))
    middle = (HEIGHT - BOTTOM + TOP) / 2
    turned = f'transform="rotate(-90 14 {middle:.0f})"'
    parts.append(
        f'<text class="label" x="14" y="{middle:.0f}" text-anchor="middle" {turned}>'
        f"{escape(up.label)}</text>"
    )
    return _svg(title, WIDTH, HEIGHT, parts)


def whisker_chart(title: str, label: str, groups: Sequence[tuple[str, Sequence[Whisker]]]) -> str:
    """Values with intervals: a row for each run, under the name of each group."""
    axis = share_axis(label)
    left = NAMES
    x = axis.scale(left, WIDTH - RIGHT)
    parts: list[str] = []
    top = float(TOP)
    for name, whiskers in groups:
        height = ROW * max(len(whiskers), 1) + 12
        middle = top + height / 2
        parts.append(
            f'<text class="tick" x="{left - 10}" y="{middle + 4:.1f}" text-anchor="end">'
            f"<title>{escape(name)}</title>{escape(_short(name))}</text>"
        )
        for at, whisker in enumerate(whiskers):
            parts += _whisker(whisker, x, top + 6 + ROW * (at + 0.5))
        top += height
        parts.append(f'<line class="grid" x1="{left}" y1="{top}" x2="{WIDTH - RIGHT}" y2="{top}"/>')
    height = int(top + BOTTOM)
    marks = _vertical_marks(axis, x, top)
    return _svg(title, WIDTH, height, [*marks, *parts, _across_label(label, height, left)])


def _short(name: str) -> str:
    """A name that fits beside the plot; a Chinese character is as wide as two letters."""
    widths = (2 if east_asian_width(character) in "WF" else 1 for character in name)
    within = sum(width <= _LONGEST_LABEL for width in accumulate(widths))
    return name if within == len(name) else name[: within - 1] + "…"


def _whisker(whisker: Whisker, x: Scale, y: float) -> list[str]:
    told = f"{whisker.name}: {whisker.value:.3f} ({whisker.low:.3f} to {whisker.high:.3f})"
    return [
        f'<g class="s{whisker.colour}"><title>{escape(told)}</title>',
        f'<line class="whisker" x1="{x(whisker.low):.1f}" y1="{y:.1f}" '
        f'x2="{x(whisker.high):.1f}" y2="{y:.1f}"/>',
        f'<circle class="dot" cx="{x(whisker.value):.1f}" cy="{y:.1f}" r="4.5"/></g>',
    ]


def _line(series: Series, x: Scale, y: Scale) -> list[str]:
    places = [(x(across), y(up)) for across, up in series.points]
    path = " ".join(f"{across:.1f},{up:.1f}" for across, up in places)
    parts = [
        f'<g class="s{series.colour}"><title>{escape(series.name)}</title>',
        f'<polyline class="line" points="{path}"/>',
    ]
    if series.dots:
        for (across, up), place in zip(series.points, places, strict=True):
            told = f"{series.name}: {across:.3g} → {up:.3f}"
            parts.append(
                f'<circle class="dot" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="4">'
                f"<title>{escape(told)}</title></circle>"
            )
    return [*parts, "</g>"]


def _horizontal_marks(axis: Axis, y: Scale) -> list[str]:
    parts = []
    for tick in axis.ticks:
        place = f"{y(tick):.1f}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{place}" x2="{WIDTH - RIGHT}" y2="{place}"/>'
        )
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
            f"{tick:g}</text>"
        )
    return parts


def _vertical_marks(axis: Axis, x: Scale, bottom: float) -> list[str]:
    parts = []
    for tick in axis.ticks:
        place = f"{x(tick):.1f}"
        parts.append(f'<line class="grid" x1="{place}" y1="{TOP}" x2="{place}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{place}" y="{bottom + 16:.1f}" text-anchor="middle">'
            f"{tick:g}</text>"
        )
    return parts


def _across_label(label: str, height: int, left: int = LEFT) -> str:
    middle = (left + WIDTH - RIGHT) / 2
    return (
        f'<text class="label" x="{middle:.0f}" y="{height - 6}" text-anchor="middle">'
        f"{escape(label)}</text>"
    )


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    name = escape(title, quote=True)
    head = f'<svg role="img" aria-label="{name}" viewBox="0 0 {width} {height}">'
    return head + "".join(parts) + "</svg>"


_MARGIN = 16
_LINE = 18  # height of a line of text
_LETTERS = 88  # of the small text that fit beside each other
_FONT = "font-family:system-ui,'Noto Sans CJK SC',sans-serif"
_PAPER, _INK, _SOFT, _RULE = "#fcfcfb", "#1a1a19", "#5f5e5a", "#e4e3df"
# On whatever the page has: half way between light and dark, or as its own text.
_ON_PAGE = ("currentColor", "currentColor", "#88888866", "none")


def image_of(heading: str, said: str, runs: Sequence[tuple[str, int]], plot: str) -> str:
    """A plot as an image of its own, with its heading, a legend and a light ground."""
    y = _MARGIN + 12
    parts = [_text(_MARGIN, y, heading, f"font-size:15px;font-weight:600;fill:{_INK}")]
    for line in textwrap.wrap(said, _LETTERS):
        y += _LINE
        parts.append(_text(_MARGIN, y, line, f"font-size:12px;fill:{_SOFT}"))
    if len(runs) > 1:
        legend, y = _legend(runs, y + _LINE + 4)
        parts += legend
    width, height = _size(plot)
    y += 8
    placed = f'<svg x="0" y="{y}" width="{width}" height="{height}" '
    inner = _dressed(plot, _INK, _SOFT, _RULE, _PAPER).replace("<svg ", placed, 1)
    tall = y + height + 8
    ground = f'<rect width="{width}" height="{tall}" rx="6" style="fill:{_PAPER}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall}" '
        f'viewBox="0 0 {width} {tall}" style="{_FONT}">{ground}{"".join(parts)}{inner}</svg>'
    )


def inline_of(plot: str) -> str:
    """A plot inside a page that nothing is known of: text and lines take the page's colour."""
    ink, soft, rule, paper = _ON_PAGE
    width, height = _size(plot)
    sized = f'<svg width="{width}" height="{height}" style="max-width:100%;height:auto" '
    return _dressed(plot, ink, soft, rule, paper).replace("<svg ", sized, 1)


def _size(plot: str) -> tuple[int, int]:
    found = re.search(r'viewBox="0 0 (\d+) (\d+)"', plot)
    return (int(found[1]), int(found[2])) if found else (WIDTH, WIDTH)


def _dressed(plot: str, ink: str, soft: str, rule: str, paper: str) -> str:
    """The plot with styles instead of classes."""
    text = "stroke:none;font-size:12px"
    styles = {
        "tick": f"{text};fill:{soft}",
        "label": f"{text};fill:{ink}",
        "grid": f"stroke:{rule};stroke-width:1",
        "diagonal": f"stroke:{soft};stroke-dasharray:4 4",
        "line": "fill:none;stroke-width:2;stroke-linejoin:round",
        "whisker": "stroke-width:2",
        "dot": f"stroke:{paper};stroke-width:1.5",
        **{f"s{at}": f"stroke:{colour};fill:{colour}" for at, colour in enumerate(DAY)},
    }
    return re.sub(r'class="(\w+)"', lambda found: f'style="{styles[found[1]]}"', plot)


def _legend(runs: Sequence[tuple[str, int]], y: int) -> tuple[list[str], int]:
    """A line for each run; how far down they reach."""
    parts = []
    for at, (name, colour) in enumerate(runs):
        middle = y + at * _LINE
        parts.append(
            f'<circle cx="{_MARGIN + 5}" cy="{middle - 4}" r="5" style="fill:{DAY[colour]}"/>'
        )
        parts.append(_text(_MARGIN + 18, middle, name, f"font-size:13px;fill:{_INK}"))
    return parts, y + (len(runs) - 1) * _LINE


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" style="{style}">{escape(text)}</text>'
