"""Line and interval charts as SVG, for HTML reports, images and notebooks.

Charts use CSS classes. Notebooks have neither the report's style sheet nor a namespace for class
names, so that images and inline plots replace every class by an inline style.
"""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any
from unicodedata import east_asian_width

from memrecall.text_length import truncate_text

# A row is one colour, for light and for dark pages.
LIGHT_PALETTE, DARK_PALETTE = zip(
    ("#2a78d6", "#3987e5"),
    ("#eb6834", "#d95926"),
    ("#1baf7a", "#199e70"),
    ("#eda100", "#c98500"),
    ("#e87ba4", "#d55181"),
    ("#008300", "#2f9a3c"),
    ("#4a3aa7", "#9085e9"),
    ("#e34948", "#e66767"),
    strict=True,
)


def _colours(palette: Sequence[str]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(palette))


def _plot_styles(
    palette: Sequence[str], ink: str, soft: str, rule: str, paper: str
) -> dict[str, str]:
    text = "stroke:none;font-size:12px"
    return {
        "tick": f"{text};fill:{soft}",
        "label": f"{text};fill:{ink}",
        "grid": f"stroke:{rule};stroke-width:1",
        "diagonal": f"stroke:{soft};stroke-dasharray:4 4",
        "line": "fill:none;stroke-width:2;stroke-linejoin:round",
        "whisker": "stroke-width:2",
        "dot": f"stroke:{paper};stroke-width:1.5",
        **{f"s{at}": f"stroke:{colour};fill:{colour}" for at, colour in enumerate(palette)},
    }


_VARIABLES = [f"var(--c{at})" for at in range(len(LIGHT_PALETTE))]
_CLASSES = {
    **_plot_styles(_VARIABLES, "var(--ink)", "var(--soft)", "var(--line)", "var(--paper)"),
    **{f"b{at}": f"background:{colour}" for at, colour in enumerate(_VARIABLES)},
}

STYLE = (
    ":root{color-scheme:light dark;--paper:#fcfcfb;--ink:#1a1a19;--soft:#5f5e5a;--line:#e4e3df;"
    f"{_colours(LIGHT_PALETTE)}}}"
    "@media (prefers-color-scheme:dark){:root{--paper:#1a1a19;--ink:#f2f1ee;--soft:#a5a49e;"
    f"--line:#383835;{_colours(DARK_PALETTE)}}}}}"
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
    "margin-left:6px}" + "".join(f".{name}{{{style}}}" for name, style in _CLASSES.items())
)


WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 12, 44
LABEL_WIDTH = 190  # beside a chart of intervals
ROW_HEIGHT = 16  # of one run in a chart of intervals
_MAX_LABEL_LENGTH = 24
_LABEL = 'class="label" text-anchor="middle"'
_TICK_BELOW = 'class="tick" text-anchor="middle"'
_TICK_BESIDE = 'class="tick" text-anchor="end"'

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one run; `colour` is an index into the palette."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """The label, range and ticks of an axis."""

    label: str
    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """Return the mapping from values to coordinates between `start` and `end`."""
        transform = math.log10 if self.log else float
        low, high = transform(self.low), transform(self.high)
        span = (high - low) or 1.0
        return lambda value: start + (transform(value) - low) / span * (end - start)


@dataclass(frozen=True, slots=True)
class Whisker:
    """A value with its interval, of one run."""

    name: str
    colour: int
    value: float
    low: float
    high: float


def share_axis(label: str) -> Axis:
    """Return an axis from 0 to 1."""
    return Axis(label, 0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))


def log_axis(label: str, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis around the values, with ticks at 1, 2, 5, 10 …"""
    low, high = max(min(values), 1e-6), max(*values, 1e-6)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    first = max((tick for tick in ticks if tick <= low), default=low)
    last = min((tick for tick in ticks if tick >= high), default=high)
    visible = [tick for tick in ticks if first <= tick <= last]
    if len(visible) > 8:
        visible = [10.0**power for power in powers if first <= 10.0**power <= last]
    return Axis(label, first, last if last > first else first * 10, visible, log=True)


def line_chart(
    title: str, across: Axis, up: Axis, series: Sequence[Series], *, diagonal: bool = False
) -> str:
    """Draw lines over two axes; the diagonal is perfect calibration, or chance."""
    x = across.scale(LEFT, WIDTH - RIGHT)
    y = up.scale(HEIGHT - BOTTOM, TOP)
    parts = []
    for tick in up.ticks:
        parts.append(_segment("grid", (LEFT, y(tick)), (WIDTH - RIGHT, y(tick))))
        parts.append(_text(LEFT - 8, y(tick) + 4, f"{tick:g}", _TICK_BESIDE))
    parts += _x_ticks(across, x, HEIGHT - BOTTOM)
    if diagonal:
        parts.append(_segment("diagonal", (x(0), y(0)), (x(1), y(1))))
    for line in series:
        parts += _line(line, x, y)
    middle = (HEIGHT - BOTTOM + TOP) / 2
    rotation = f'{_LABEL} transform="rotate(-90 14 {middle:.0f})"'
    parts += [_x_label(across.label, HEIGHT), _text(14, middle, up.label, rotation)]
    return _svg(title, HEIGHT, parts)


def whisker_chart(title: str, label: str, groups: Sequence[tuple[str, Sequence[Whisker]]]) -> str:
    """Draw values with intervals: one group per label, one row per run."""
    axis = share_axis(label)
    left, right = LABEL_WIDTH, WIDTH - RIGHT
    x = axis.scale(left, right)
    parts: list[str] = []
    top = float(TOP)
    for name, whiskers in groups:
        height = ROW_HEIGHT * max(len(whiskers), 1) + 12
        text = _text(left - 10, top + height / 2 + 4, _truncate_label(name), _TICK_BESIDE)
        parts.append(f"<g><title>{escape(name)}</title>{text}</g>")
        for at, whisker in enumerate(whiskers):
            parts += _whisker(whisker, x, top + 6 + ROW_HEIGHT * (at + 0.5))
        top += height
        parts.append(_segment("grid", (left, top), (right, top)))
    height = int(top + BOTTOM)
    return _svg(title, height, [*_x_ticks(axis, x, top), *parts, _x_label(label, height, left)])


def category_heading(label: str) -> str:
    """Return the heading of a chart by category."""
    return f"{label[0].upper()}{label[1:]} by category"


def category_chart(label: str, metric: str, summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Draw one metric of several runs, overall and by category."""

    def whiskers(metrics: Iterable[Mapping[str, Any]]) -> list[Whisker]:
        return [
            Whisker(
                name, colour, values[metric]["value"], values[metric]["low"], values[metric]["high"]
            )
            for colour, (name, values) in enumerate(zip(summaries, metrics, strict=True))
            if metric in values
        ]

    groups = [("overall", whiskers(summary["overall"] for summary in summaries.values()))]
    categories = [summary["categories"] for summary in summaries.values()]
    groups += [
        (kind, whiskers(metrics.get(kind, {}) for metrics in categories))
        for kind in sorted(set().union(*categories))
    ]
    return whisker_chart(category_heading(label), label, [group for group in groups if group[1]])


def _truncate_label(name: str) -> str:
    """Truncate a label to its column; a Chinese character is as wide as two letters."""
    widths = (2 if east_asian_width(character) in "WF" else 1 for character in name)
    within = sum(width <= _MAX_LABEL_LENGTH for width in accumulate(widths))
    return name if within == len(name) else truncate_text(name, within - 1)


def _whisker(whisker: Whisker, x: Scale, y: float) -> list[str]:
    tooltip = f"{whisker.name}: {whisker.value:.3f} ({whisker.low:.3f} to {whisker.high:.3f})"
    return [
        f'<g class="s{whisker.colour}"><title>{escape(tooltip)}</title>',
        _segment("whisker", (x(whisker.low), y), (x(whisker.high), y)),
        f'<circle class="dot" cx="{x(whisker.value):.1f}" cy="{y:.1f}" r="4.5"/></g>',
    ]


def _line(series: Series, x: Scale, y: Scale) -> list[str]:
    path = " ".join(f"{x(across):.1f},{y(up):.1f}" for across, up in series.points)
    parts = [
        f'<g class="s{series.colour}"><title>{escape(series.name)}</title>',
        f'<polyline class="line" points="{path}"/>',
    ]
    for across, up in series.points if series.dots else ():
        tooltip = escape(f"{series.name}: {across:.3g} → {up:.3f}")
        place = f'cx="{x(across):.1f}" cy="{y(up):.1f}"'
        parts.append(f'<circle class="dot" {place} r="4"><title>{tooltip}</title></circle>')
    return [*parts, "</g>"]


def _x_ticks(axis: Axis, x: Scale, bottom: float) -> list[str]:
    parts = []
    for tick in axis.ticks:
        parts.append(_segment("grid", (x(tick), TOP), (x(tick), bottom)))
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}", _TICK_BELOW))
    return parts


def _x_label(label: str, height: int, left: int = LEFT) -> str:
    return _text((left + WIDTH - RIGHT) / 2, height - 6, label, _LABEL)


def _segment(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    ends = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line class="{kind}" {ends}/>'


def _text(x: float, y: float, text: str, attributes: str) -> str:
    return f'<text {attributes} x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    name = escape(title, quote=True)
    head = f'<svg role="img" aria-label="{name}" viewBox="0 0 {WIDTH} {height}">'
    return head + "".join(parts) + "</svg>"


_MARGIN = 16
_LINE_HEIGHT = 18
_LINE_LENGTH = 88  # characters of small text
_FONT = "font-family:system-ui,'Noto Sans CJK SC',sans-serif"
_PAPER, _INK, _SOFT, _RULE = "#fcfcfb", "#1a1a19", "#5f5e5a", "#e4e3df"
# The page's text colour, and a grey that is visible on light and dark pages.
_PAGE_COLOURS = ("currentColor", "currentColor", "#88888866", "none")


def render_image(heading: str, caption: str, runs: Sequence[tuple[str, int]], plot: str) -> str:
    """Return a plot as a standalone image with heading, legend and background."""
    y = _MARGIN + 12
    bold = f'style="font-size:15px;font-weight:600;fill:{_INK}"'
    parts = [_text(_MARGIN, y, heading, bold)]
    for line in textwrap.wrap(caption, _LINE_LENGTH):
        y += _LINE_HEIGHT
        parts.append(_text(_MARGIN, y, line, f'style="font-size:12px;fill:{_SOFT}"'))
    if len(runs) > 1:
        legend, y = _legend(runs, y + _LINE_HEIGHT + 4)
        parts += legend
    width, height = _size(plot)
    y += 8
    position = f'<svg x="0" y="{y}" width="{width}" height="{height}" '
    inner = _inline_styles(plot, _INK, _SOFT, _RULE, _PAPER).replace("<svg ", position, 1)
    total = y + height + 8
    background = f'<rect width="{width}" height="{total}" rx="6" style="fill:{_PAPER}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" '
        f'viewBox="0 0 {width} {total}" style="{_FONT}">{background}{"".join(parts)}{inner}</svg>'
    )


def render_inline(plot: str) -> str:
    """Return a plot for an arbitrary page: text and lines take the page's colour."""
    width, height = _size(plot)
    sized = f'<svg width="{width}" height="{height}" style="max-width:100%;height:auto" '
    return _inline_styles(plot, *_PAGE_COLOURS).replace("<svg ", sized, 1)


def _size(plot: str) -> tuple[int, int]:
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', plot)
    return (int(box[1]), int(box[2])) if box else (WIDTH, WIDTH)


def _inline_styles(plot: str, *colours: str) -> str:
    """Replace the classes of a plot by inline styles."""
    styles = _plot_styles(LIGHT_PALETTE, *colours)
    return re.sub(r'class="(\w+)"', lambda match: f'style="{styles[match[1]]}"', plot)


def _legend(runs: Sequence[tuple[str, int]], y: int) -> tuple[list[str], int]:
    """Return a line for each run, and the position of the last one."""
    parts = []
    for at, (name, colour) in enumerate(runs):
        middle = y + at * _LINE_HEIGHT
        fill = LIGHT_PALETTE[colour]
        parts.append(f'<circle cx="{_MARGIN + 5}" cy="{middle - 4}" r="5" style="fill:{fill}"/>')
        parts.append(_text(_MARGIN + 18, middle, name, f'style="font-size:13px;fill:{_INK}"'))
    return parts, y + (len(runs) - 1) * _LINE_HEIGHT
