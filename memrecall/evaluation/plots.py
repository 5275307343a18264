"""Line and interval charts as SVG, for HTML reports, images and notebooks.

Charts use CSS classes. Notebooks have neither the report's style sheet nor a namespace for class
names, so that images and inline plots replace every class by an inline style.
"""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from unicodedata import east_asian_width

LIGHT_PALETTE = (
    "#2a78d6",
    "#eb6834",
    "#1baf7a",
    "#eda100",
    "#e87ba4",
    "#008300",
    "#4a3aa7",
    "#e34948",
)
DARK_PALETTE = (
    "#3987e5",
    "#d95926",
    "#199e70",
    "#c98500",
    "#d55181",
    "#2f9a3c",
    "#9085e9",
    "#e66767",
)


def _colours(palette: tuple[str, ...]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(palette))


_CLASSES = "".join(
    f".s{at}{{stroke:var(--c{at});fill:var(--c{at})}}.b{at}{{background:var(--c{at})}}"
    for at in range(len(LIGHT_PALETTE))
)

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
    "margin-left:6px}"
    "svg text{stroke:none;font-size:12px}.tick{fill:var(--soft)}.label{fill:var(--ink)}"
    ".grid{stroke:var(--line);stroke-width:1}.diagonal{stroke:var(--soft);stroke-dasharray:4 4}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.whisker{stroke-width:2}"
    ".dot{stroke:var(--paper);stroke-width:1.5}"
    f"{_CLASSES}"
)


WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 12, 44
LABEL_WIDTH = 190  # beside a chart of intervals
ROW_HEIGHT = 16  # of one run in a chart of intervals
_MAX_LABEL_LENGTH = 24

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
        visible = [tick for tick in visible if _is_power_of_ten(tick)]
    return Axis(label, first, last if last > first else first * 10, visible, log=True)


def _is_power_of_ten(value: float) -> bool:
    return math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9)


def line_chart(
    title: str, across: Axis, up: Axis, series: Sequence[Series], *, diagonal: bool = False
) -> str:
    """Draw lines over two axes; the diagonal is perfect calibration, or chance."""
    x = across.scale(LEFT, WIDTH - RIGHT)
    y = up.scale(HEIGHT - BOTTOM, TOP)
    parts = [*_y_ticks(up, y), *_x_ticks(across, x, HEIGHT - BOTTOM)]
    if diagonal:
        ends = f'x1="{x(0):.1f}" y1="{y(0):.1f}" x2="{x(1):.1f}" y2="{y(1):.1f}"'
        parts.append(f'<line class="diagonal" {ends}/>')
    for line in series:
        parts += _line(line, x, y)
    parts.append(_x_label(across.label, HEIGHT))
    middle = (HEIGHT - BOTTOM + TOP) / 2
    rotation = f'transform="rotate(-90 14 {middle:.0f})"'
    parts.append(
        f'<text class="label" x="14" y="{middle:.0f}" text-anchor="middle" {rotation}>'
        f"{escape(up.label)}</text>"
    )
    return _svg(title, WIDTH, HEIGHT, parts)


def whisker_chart(title: str, label: str, groups: Sequence[tuple[str, Sequence[Whisker]]]) -> str:
    """Draw values with intervals: one group per label, one row per run."""
    axis = share_axis(label)
    left = LABEL_WIDTH
    x = axis.scale(left, WIDTH - RIGHT)
    parts: list[str] = []
    top = float(TOP)
    for name, whiskers in groups:
        height = ROW_HEIGHT * max(len(whiskers), 1) + 12
        middle = top + height / 2
        parts.append(
            f'<text class="tick" x="{left - 10}" y="{middle + 4:.1f}" text-anchor="end">'
            f"<title>{escape(name)}</title>{escape(_shorten(name))}</text>"
        )
        for at, whisker in enumerate(whiskers):
            parts += _whisker(whisker, x, top + 6 + ROW_HEIGHT * (at + 0.5))
        top += height
        parts.append(f'<line class="grid" x1="{left}" y1="{top}" x2="{WIDTH - RIGHT}" y2="{top}"/>')
    height = int(top + BOTTOM)
    ticks = _x_ticks(axis, x, top)
    return _svg(title, WIDTH, height, [*ticks, *parts, _x_label(label, height, left)])


def _shorten(name: str) -> str:
    """Truncate a label to its column; a Chinese character is as wide as two letters."""
    widths = (2 if east_asian_width(character) in "WF" else 1 for character in name)
    within = sum(width <= _MAX_LABEL_LENGTH for width in accumulate(widths))
    return name if within == len(name) else name[: within - 1] + "…"


def _whisker(whisker: Whisker, x: Scale, y: float) -> list[str]:
    tooltip = f"{whisker.name}: {whisker.value:.3f} ({whisker.low:.3f} to {whisker.high:.3f})"
    return [
        f'<g class="s{whisker.colour}"><title>{escape(tooltip)}</title>',
        f'<line class="whisker" x1="{x(whisker.low):.1f}" y1="{y:.1f}" '
        f'x2="{x(whisker.high):.1f}" y2="{y:.1f}"/>',
        f'<circle class="dot" cx="{x(whisker.value):.1f}" cy="{y:.1f}" r="4.5"/></g>',
    ]


def _line(series: Series, x: Scale, y: Scale) -> list[str]:
    pixels = [(x(across), y(up)) for across, up in series.points]
    path = " ".join(f"{left:.1f},{top:.1f}" for left, top in pixels)
    parts = [
        f'<g class="s{series.colour}"><title>{escape(series.name)}</title>',
        f'<polyline class="line" points="{path}"/>',
    ]
    if series.dots:
        for (across, up), (left, top) in zip(series.points, pixels, strict=True):
            tooltip = f"{series.name}: {across:.3g} → {up:.3f}"
            parts.append(
                f'<circle class="dot" cx="{left:.1f}" cy="{top:.1f}" r="4">'
                f"<title>{escape(tooltip)}</title></circle>"
            )
    return [*parts, "</g>"]


def _y_ticks(axis: Axis, y: Scale) -> list[str]:
    parts = []
    for tick in axis.ticks:
        position = f"{y(tick):.1f}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" y1="{position}" x2="{WIDTH - RIGHT}" y2="{position}"/>'
        )
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
            f"{tick:g}</text>"
        )
    return parts


def _x_ticks(axis: Axis, x: Scale, bottom: float) -> list[str]:
    parts = []
    for tick in axis.ticks:
        position = f"{x(tick):.1f}"
        parts.append(
            f'<line class="grid" x1="{position}" y1="{TOP}" x2="{position}" y2="{bottom}"/>'
        )
        parts.append(
            f'<text class="tick" x="{position}" y="{bottom + 16:.1f}" text-anchor="middle">'
            f"{tick:g}</text>"
        )
    return parts


def _x_label(label: str, height: int, left: int = LEFT) -> str:
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
_LINE_HEIGHT = 18
_LINE_LENGTH = 88  # characters of small text
_FONT = "font-family:system-ui,'Noto Sans CJK SC',sans-serif"
_PAPER, _INK, _SOFT, _RULE = "#fcfcfb", "#1a1a19", "#5f5e5a", "#e4e3df"
# The page's text colour, and a grey that is visible on light and dark pages.
_PAGE_COLOURS = ("currentColor", "currentColor", "#88888866", "none")


def render_image(heading: str, caption: str, runs: Sequence[tuple[str, int]], plot: str) -> str:
    """Return a plot as a standalone image with heading, legend and background."""
    y = _MARGIN + 12
    parts = [_text(_MARGIN, y, heading, f"font-size:15px;font-weight:600;fill:{_INK}")]
    for line in textwrap.wrap(caption, _LINE_LENGTH):
        y += _LINE_HEIGHT
        parts.append(_text(_MARGIN, y, line, f"font-size:12px;fill:{_SOFT}"))
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
    ink, soft, rule, paper = _PAGE_COLOURS
    width, height = _size(plot)
    sized = f'<svg width="{width}" height="{height}" style="max-width:100%;height:auto" '
    return _inline_styles(plot, ink, soft, rule, paper).replace("<svg ", sized, 1)


def _size(plot: str) -> tuple[int, int]:
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', plot)
    return (int(box[1]), int(box[2])) if box else (WIDTH, WIDTH)


def _inline_styles(plot: str, ink: str, soft: str, rule: str, paper: str) -> str:
    """Replace the classes of a plot by inline styles."""
    text = "stroke:none;font-size:12px"
    styles = {
        "tick": f"{text};fill:{soft}",
        "label": f"{text};fill:{ink}",
        "grid": f"stroke:{rule};stroke-width:1",
        "diagonal": f"stroke:{soft};stroke-dasharray:4 4",
        "line": "fill:none;stroke-width:2;stroke-linejoin:round",
        "whisker": "stroke-width:2",
        "dot": f"stroke:{paper};stroke-width:1.5",
        **{f"s{at}": f"stroke:{colour};fill:{colour}" for at, colour in enumerate(LIGHT_PALETTE)},
    }
    return re.sub(r'class="(\w+)"', lambda match: f'style="{styles[match[1]]}"', plot)


def _legend(runs: Sequence[tuple[str, int]], y: int) -> tuple[list[str], int]:
    """Return a line for each run, and the position of the last one."""
    parts = []
    for at, (name, colour) in enumerate(runs):
        middle = y + at * _LINE_HEIGHT
        fill = LIGHT_PALETTE[colour]
        parts.append(f'<circle cx="{_MARGIN + 5}" cy="{middle - 4}" r="5" style="fill:{fill}"/>')
        parts.append(_text(_MARGIN + 18, middle, name, f"font-size:13px;fill:{_INK}"))
    return parts, y + (len(runs) - 1) * _LINE_HEIGHT


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" style="{style}">{escape(text)}</text>'
