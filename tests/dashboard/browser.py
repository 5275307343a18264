"""A Chromium to test with: one on the PATH, or Playwright's own.

Run as a module it looks for one, tries to install Playwright's if there is none, and says so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LEFT_OUT = (
    "BROWSER TESTS LEFT OUT: no Chromium was found. Install one (`apt install chromium`, or"
    " `python -m playwright install chromium`), or name it: MEMRECALL_CHROMIUM=/path/to/chromium"
)


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


def main() -> int:
    """Make sure that there is one, or tell loudly that there is none; never a failure."""
    if find_browser() is None:
        print("looking for a browser to test the dashboard with …", flush=True)
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        try:
            subprocess.run(command, check=False, timeout=300, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"could not install one: {error}")
    if find_browser() is None:
        print(f"\n{'!' * 78}\n{LEFT_OUT}\n{'!' * 78}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
