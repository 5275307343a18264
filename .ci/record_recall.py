"""Record `memrecall recall` in a terminal, as an SVG that plays: `make recording`.

The commands run in a pseudo-terminal, and every line appears in the picture when it did in the run;
pauses are shortened. Readers who prefer less motion see the last state at once.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "images" / "recall.svg"
COMMANDS = (
    "memrecall import fixtures/demo/chat.jsonl --db chat.db",
    'memrecall recall "Who has my spare key?" --user maya --db chat.db --brief',
)
COLUMNS, FONT, LEADING, MARGIN = 92, 14, 20, 16
WIDTH = 8.43  # of a character, by which a line is stretched to fit any monospaced font
TYPED, LONGEST_PAUSE = 0.03, 1.0  # seconds: of a character, and between two lines
THEME = MONOKAI
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
.line { opacity: 0; animation: show 0.01s forwards }
.cover { transform-box: fill-box; animation: type linear forwards }
@keyframes show { to { opacity: 1 } }
@keyframes type { to { transform: translateX(100%) } }
@media (prefers-reduced-motion: reduce) {
  .line { opacity: 1; animation: none } .cover { display: none } }
"""


class Line(NamedTuple):
    """A line of the terminal, and when it appeared."""

    text: Text
    seconds: float
    is_typed: bool = False


def run(command: str, folder: Path) -> list[tuple[float, str]]:
    """Run a command in a terminal; return its lines with the seconds since its start."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    started, output, lines = time.monotonic(), "", list[tuple[float, str]]()
    with subprocess.Popen(
        ["/bin/sh", "-c", command], stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ) as process:
        os.close(theirs)
        while chunk := _read(ours):
            *whole, output = (output + chunk).split("\n")
            lines += [(time.monotonic() - started, line.rstrip("\r")) for line in whole]
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return lines


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65_536).decode()
    except OSError:  # how Linux reports the end of a terminal
        return ""


def record(folder: Path) -> list[Line]:
    """Run the commands and return what the terminal showed, with pauses cut."""
    (folder / "fixtures").symlink_to(ROOT / "fixtures")
    lines, now = list[Line](), 0.5
    for command in COMMANDS:
        lines.append(Line(Text.assemble((f"$ {command}", "bold")), now, is_typed=True))
        now, last = now + TYPED * len(command), 0.0
        for seconds, text in run(command, folder):
            now += min(seconds - last, LONGEST_PAUSE)
            last = seconds
            shown = re.sub(
                r".*\r|\x1b\[[0-9;?]*[^0-9;?m]", "", text
            )  # a progress line's last state
            plain = Text.from_ansi(shown)
            if len(plain.plain.strip()) != 1 and (shown or "\r" not in text):  # no spinner's rest
                lines.append(Line(plain, now))
        now += LONGEST_PAUSE
    return lines


def draw(lines: list[Line]) -> str:
    """Return the SVG of a recording."""
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * LEADING + 2 * MARGIN
    paper = _hex(Color.from_rgb(*THEME.background_color))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}">',
            "<title>A recall in the terminal</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{paper}"/>',
            *(_draw_line(number, line, paper) for number, line in enumerate(lines)),
            "</svg>\n",
        ]
    )


def _draw_line(number: int, line: Line, paper: str) -> str:
    top, length = MARGIN + number * LEADING, line.text.cell_len
    parts = [
        f"<tspan {_look(segment.style)}>{escape(segment.text)}</tspan>"
        for segment in line.text.render(_console())
        if segment.text.strip("\n")
    ]
    stretch = f' textLength="{length * WIDTH:.0f}"' if length else ""
    text = f'<text x="{MARGIN}" y="{top + FONT}"{stretch}>{"".join(parts)}</text>'
    cover, delay = "", f"animation-delay:{line.seconds:.2f}s"
    if line.is_typed:
        size = f'width="{length * WIDTH:.0f}" height="{LEADING}"'
        steps = (
            f"animation-duration:{TYPED * length:.2f}s;animation-timing-function:steps({length})"
        )
        place = f'x="{MARGIN}" y="{top}" {size} fill="{paper}"'
        cover = f'<rect class="cover" {place} style="{steps};{delay}"/>'
    return f'<g class="line" style="{delay}">{text}{cover}</g>'


def _console() -> Console:
    return Console(width=COLUMNS, color_system="truecolor", force_terminal=True)


def _look(style: Style | None) -> str:
    style = style or Style()
    rgb = style.color.get_truecolor(THEME) if style.color else THEME.foreground_color
    fill = f'fill="{_hex(Color.from_rgb(*rgb))}"'
    dim, bold = ' opacity="0.65"' * bool(style.dim), ' font-weight="bold"' * bool(style.bold)
    return fill + dim + bold


def _hex(color: Color) -> str:
    return str(color.get_truecolor().hex)


def main() -> None:
    """Write the recording."""
    with tempfile.TemporaryDirectory() as folder:
        lines = record(Path(folder))
    TARGET.write_text(draw(lines), "utf-8")
    print(f"{TARGET}: {len(lines)} lines, {lines[-1].seconds:.1f} s")


if __name__ == "__main__":
    main()
