"""The Chromium for the tests: from the PATH, or the one of Playwright.

Run as a module, it installs Playwright's Chromium if none is found. It prints nothing: the
summary of the tests mentions a missing browser.
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
NO_BROWSER = (
    "BROWSER TESTS LEFT OUT: no Chromium was found. Install one (`apt install chromium`, or"
    " `python -m playwright install chromium`), or name it: MEMRECALL_CHROMIUM=/path/to/chromium"
)
_DOWNLOADS = "https://cdn.playwright.dev"
_SECONDS_TO_ANSWER = 5.0  # a closed network may never answer
_SECONDS_TO_LOAD = 300.0


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    configured = os.environ.get("MEMRECALL_CHROMIUM")
    if configured:
        return configured
    on_path = next(filter(None, map(shutil.which, NAMES)), None)
    return on_path or _own_browser()


def _own_browser() -> str | None:
    """Return the path of the Chromium that Playwright installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    browsers = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or cache / "ms-playwright")
    paths = sorted(browsers.glob("chromium*/chrome-*/*chrom*"))
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None)


def _can_load() -> bool:
    """Return True if the download host or the proxy accepts connections."""
    url = urlsplit(
        getproxies().get("https") or os.environ.get("PLAYWRIGHT_DOWNLOAD_HOST") or _DOWNLOADS
    )
    reachable_hosts: list[str] = []

    def connect() -> None:
        try:
            port = url.port or {"http": 80}.get(url.scheme, 443)
            socket.create_connection((url.hostname or "", port), _SECONDS_TO_ANSWER).close()
        except (OSError, ValueError):
            return
        reachable_hosts.append(url.netloc)

    # Name resolution has no timeout.
    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_SECONDS_TO_ANSWER)
    return bool(reachable_hosts)


def main() -> int:
    """Install a browser if there is none; never fail."""
    if find_browser() is None and _can_load():
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, check=False, timeout=_SECONDS_TO_LOAD, capture_output=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
