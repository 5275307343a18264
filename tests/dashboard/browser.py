"""The Chromium for the tests, from the PATH or of Playwright, and axe-core from npm.

Run as a module, it installs Playwright's Chromium if none is found, and axe-core into `.axe`. It
prints nothing: the summary of the tests mentions what is missing.
"""

import json
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
AXE = "axe-core@4.14.0"
NO_AXE = (
    f"ACCESSIBILITY TESTS LEFT OUT: {AXE} is not installed. `make test-browser` installs it if npm"
    " is on the PATH"
)
_AXE_FOLDER = Path(__file__).parents[2] / ".axe"
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


def find_axe() -> str | None:
    """Return the script of axe-core in the pinned version, or None."""
    folder = _AXE_FOLDER / "node_modules" / "axe-core"
    try:
        version = json.loads((folder / "package.json").read_text("utf-8"))["version"]
        script = (folder / "axe.min.js").read_text("utf-8")
    except FileNotFoundError:
        return None
    return script if AXE.endswith(f"@{version}") else None


def _install_axe() -> None:
    npm = shutil.which("npm")
    if npm is None or find_axe() is not None:
        return
    _AXE_FOLDER.mkdir(exist_ok=True)
    (_AXE_FOLDER / ".gitignore").write_text("*\n")
    _run(npm, "install", "--prefix", str(_AXE_FOLDER), "--no-audit", "--no-fund", "--silent", AXE)


def _run(*command: str) -> None:
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, check=False, timeout=_SECONDS_TO_LOAD, capture_output=True)


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
    """Install a browser and axe-core if they are missing; never fail."""
    if find_browser() is None and _can_load():
        _run(sys.executable, "-m", "playwright", "install", "chromium")
    _install_axe()
    return 0


if __name__ == "__main__":
    sys.exit(main())
