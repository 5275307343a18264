"""Plots that stand alone: in an image with paper of its own, or inside what a notebook shows.

A notebook has no style sheet of ours, and one of its own classes may be called as ours are. So
every class becomes an inline style here.
"""

import re
import textwrap
from collections.abc import Sequence
from html import escape

from memrecall.evaluation.plots import WIDTH
from memrecall.evaluation.style import DAY

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
