"""Line and interval charts as SVG, for reports, notebooks and the dashboard.

Text and axes take the colour of the page around the chart, so it fits light and dark pages. Colours
and sizes are attributes: a notebook has no style sheet for them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from memrecall.text.html import Html
from memrecall.text.language import language_of
from memrecall.text_length import truncate_text

# Distinguishable with a colour vision deficiency, and on light and dark pages.
PALETTE = ("#4477dd", "#cc7711", "#229977", "#bb4466", "#8866cc", "#33a0b5", "#99872e", "#777f8c")
_WIDTH, _HEIGHT = 520, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 12, 44
_NAMES_WIDTH = 190  # left of an interval chart
_ROW_HEIGHT = 16  # of one run in an interval chart
_GRID = {"stroke": "currentColor", "stroke_opacity": 0.2}
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Axis:
    """The label and ticks of an axis, which spans the ticks."""

    label: str
    ticks: Sequence[float] = _SHARES
    is_log: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """Return the mapping from values to coordinates between `start` and `end`."""
        transform = math.log10 if self.is_log else float
        low, high = transform(self.ticks[0]), transform(self.ticks[-1])
        return lambda value: start + (transform(value) - low) / ((high - low) or 1) * (end - start)


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one run."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


def log_axis(label: str, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis around the values, with ticks at 1, 2, 5, 10 …"""
    low, high = max(min(values), 1e-6), max(*values, 1e-6)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    first, last = max(t for t in ticks if t <= low), min(t for t in ticks if t >= high)
    visible = [tick for tick in ticks if first <= tick <= last]
    if len(visible) > 8:
        visible = [10.0**decade for decade in decades]
    return Axis(label, visible, is_log=True)


def line_chart(
    title: str, across: Axis, up: Axis, series: Sequence[Series], *, diagonal: bool = False
) -> Html:
    """Draw lines over two axes; the diagonal is perfect calibration, or chance."""
    bottom = _HEIGHT - _BOTTOM
    x, y = across.scale(_LEFT, _WIDTH - _RIGHT), up.scale(bottom, _TOP)
    parts = [_x_axis(across, x, bottom)]
    for tick in up.ticks:
        parts.append(_line((_LEFT, y(tick)), (_WIDTH - _RIGHT, y(tick)), **_GRID))
        parts.append(_text(_LEFT - 8, y(tick) + 4, f"{tick:g}", anchor="end"))
    if diagonal:
        dashes = {"stroke": "currentColor", "stroke_dasharray": "4 4"}
        parts.append(_line((x(0), y(0)), (x(1), y(1)), **dashes))
    parts += [_series(each, x, y) for each in series]
    middle = (bottom + _TOP) / 2
    parts.append(_text(14, middle, up.label, transform=f"rotate(-90 14 {middle:.0f})"))
    return _svg(title, _HEIGHT, parts)


def _series(series: Series, x: Scale, y: Scale) -> str:
    points = [(round(x(across), 1), round(y(up), 1)) for across, up in series.points]
    path = " ".join(f"{across},{up}" for across, up in points)
    parts = [
        _element("title", escape(series.name)),
        _element("polyline", points=path, fill="none", stroke_width=2, stroke_linejoin="round"),
    ]
    for (across, up), (cx, cy) in zip(series.points, points, strict=True) if series.dots else ():
        tooltip = _element("title", escape(f"{series.name}: {across:.3g} → {up:.3f}"))
        parts.append(_element("circle", tooltip, cx=cx, cy=cy, r=4))
    return _element("g", *parts, stroke=series.colour, fill=series.colour)


def category_chart(title: str, label: str, metric: str, summaries: Mapping[str, Any]) -> Html:
    """Draw one metric of several runs with its intervals, overall and by category."""
    kinds = sorted({kind for metrics in summaries.values() for kind in metrics["categories"]})
    axis = Axis(label)
    x = axis.scale(_NAMES_WIDTH, _WIDTH - _RIGHT)
    parts, top = [], float(_TOP)
    for kind in ("", *kinds):
        rows: list[str] = []
        for colour, (run, metrics) in zip(PALETTE, summaries.items(), strict=False):
            group = metrics["categories"].get(kind, {}) if kind else metrics["overall"]
            if metric in group:
                y = top + 6 + _ROW_HEIGHT * (len(rows) + 0.5)
                rows.append(_interval(run, colour, group[metric], x, y))
        if rows:
            height = _ROW_HEIGHT * len(rows) + 12
            parts += [_row_name(kind or "overall", top + height / 2 + 4), *rows]
            top += height
            parts.append(_line((_NAMES_WIDTH, top), (_WIDTH - _RIGHT, top), **_GRID))
    return _svg(title, int(top + _BOTTOM), [_x_axis(axis, x, top, _NAMES_WIDTH), *parts])


def _row_name(name: str, y: float) -> str:
    label = truncate_text(name, 14 if language_of(name) == "zh" else 24)
    text = _text(_NAMES_WIDTH - 10, y, label, anchor="end")
    return _element("g", _element("title", escape(name)), text)


def _interval(name: str, colour: str, interval: Mapping[str, float], x: Scale, y: float) -> str:
    value, low, high = (interval[part] for part in ("value", "low", "high"))
    return _element(
        "g",
        _element("title", escape(f"{name}: {value:.3f} ({low:.3f} to {high:.3f})")),
        _line((x(low), y), (x(high), y), stroke_width=2),
        _element("circle", cx=round(x(value), 1), cy=round(y, 1), r=4.5),
        stroke=colour,
        fill=colour,
    )


def _x_axis(axis: Axis, x: Scale, bottom: float, left: int = _LEFT) -> str:
    parts = [_text((left + _WIDTH - _RIGHT) / 2, bottom + 38, axis.label)]
    for tick in axis.ticks:
        parts.append(_line((x(tick), _TOP), (x(tick), bottom), **_GRID))
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}"))
    return "".join(parts)


def _line(start: tuple[float, float], end: tuple[float, float], **attributes: object) -> str:
    (x1, y1), (x2, y2) = start, end
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return _element("line", **{name: round(at, 1) for name, at in ends.items()}, **attributes)


def _text(x: float, y: float, text: str, anchor: str = "middle", **attributes: object) -> str:
    place = {"x": round(x, 1), "y": round(y, 1), "text_anchor": anchor}
    return _element("text", escape(text), **place, **attributes)


def _svg(title: str, height: int, parts: Iterable[str]) -> Html:
    frame = {"role": "img", "aria_label": title, "viewBox": f"0 0 {_WIDTH} {height}"}
    style = f"width:{_WIDTH}px;max-width:100%;height:auto"
    text = {"fill": "currentColor", "font_size": 12, "font_family": "system-ui, sans-serif"}
    return _element("svg", *parts, **frame, style=style, **text)


def _element(name: str, *parts: str, **attributes: object) -> Html:
    """Return an element around parts of SVG; `_` in the name of an attribute stands for `-`."""
    pairs = (
        f' {key.replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{''.join(pairs)}>{''.join(parts)}</{name}>")
