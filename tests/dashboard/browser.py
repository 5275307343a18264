"""A Chromium to test with: one on the PATH, or Playwright's own.

Run as a module it looks for one and tries to install Playwright's if there is none. It says
nothing: where there is no browser in the end, the summary of the tests says so in one line.
"""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LEFT_OUT = (
    "BROWSER TESTS LEFT OUT: no Chromium was found. Install one (`apt install chromium`, or"
    " `python -m playwright install chromium`), or name it: MEMRECALL_CHROMIUM=/path/to/chromium"
)
_DOWNLOADS = "https://cdn.playwright.dev"
_SECONDS_TO_ANSWER = 5.0  # for whoever has the download; a closed network may never answer
_SECONDS_TO_LOAD = 300.0


def find_browser() -> str | None:
    """The path of a Chromium; None if there is none."""
    named = os.environ.get("MEMRECALL_CHROMIUM")
    if named:
        return named
    on_path = next(filter(None, map(shutil.which, NAMES)), None)
    return on_path or _own_browser()


def _own_browser() -> str | None:
    """Where Playwright keeps the Chromium that it installs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or cache / "ms-playwright")
    found = sorted(kept.glob("chromium*/chrome-*/*chrom*"))
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)


def _can_load() -> bool:
    """Whether the host that has the browser, or the proxy on the way to it, answers soon."""
    place = urlsplit(
        getproxies().get("https") or os.environ.get("PLAYWRIGHT_DOWNLOAD_HOST") or _DOWNLOADS
    )
    answered: list[str] = []

    def connect() -> None:
        try:
            port = place.port or {"http": 80}.get(place.scheme, 443)
            socket.create_connection((place.hostname or "", port), _SECONDS_TO_ANSWER).close()
        except (OSError, ValueError):
            return
        answered.append(place.netloc)

    # Looking up a name knows no limit of its own.
    looking = Thread(target=connect, daemon=True)
    looking.start()
    looking.join(_SECONDS_TO_ANSWER)
    return bool(answered)


def main() -> int:
    """Make sure that there is one if that can be done; never a failure."""
    if find_browser() is None and _can_load():
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, check=False, timeout=_SECONDS_TO_LOAD, capture_output=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
