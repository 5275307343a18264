"""Sessions, cookies, redirects and translations, without a browser."""

import re
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from memrecall import dashboard
from memrecall.dashboard.application import is_dashboard_path
from memrecall.dashboard.auth import (
    MAX_SESSIONS,
    SESSION_SECONDS,
    BrowserSessions,
    choose_language,
    choose_theme,
    local_path,
    read_cookies,
)
from memrecall.dashboard.page import WORDS


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_token_is_valid_until_it_expires_or_ends() -> None:
    clock = Clock()
    sessions = BrowserSessions(clock)
    first, second = sessions.start("one"), sessions.start("two")
    assert [sessions.find_key(token) for token in (first, second, "", "other")] == [
        "one",
        "two",
        None,
        None,
    ]
    sessions.end(first)
    assert sessions.find_key(first) is None
    clock.now = SESSION_SECONDS
    assert sessions.find_key(second) is None


def test_oldest_sessions_are_evicted() -> None:
    sessions = BrowserSessions(Clock())
    oldest = sessions.start("old")
    tokens = [sessions.start(str(number)) for number in range(MAX_SESSIONS)]
    assert sessions.find_key(oldest) is None
    assert sessions.find_key(tokens[0]) == "0"


@pytest.mark.parametrize(
    ("accepted", "cookie", "language"),
    [
        ("", "", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh"),
        ("fr, zh;q=0.7, en;q=0.5", "", "zh"),
        ("zh-CN", "memrecall_language=en", "en"),
        ("zh-CN", "memrecall_language=fr", "zh"),
    ],
)
def test_language_follows_cookie_then_browser(accepted: str, cookie: str, language: str) -> None:
    headers = {b"accept-language": accepted.encode(), b"cookie": cookie.encode()}
    assert choose_language(headers) == language


def test_theme_follows_cookie() -> None:
    assert choose_theme({}) == "auto"
    assert choose_theme({b"cookie": b"memrecall_theme=dark"}) == "dark"
    assert choose_theme({b"cookie": b"memrecall_theme=pink"}) == "auto"


@given(st.binary(max_size=200))
def test_any_cookie_header_can_be_parsed(header: bytes) -> None:
    headers = {b"cookie": header}
    assert isinstance(read_cookies(headers), dict)
    assert choose_language(headers | {b"accept-language": header}) in ("en", "zh")


@given(st.text(max_size=60))
def test_redirects_stay_on_this_site(target: str) -> None:
    path = local_path(target)
    assert path.startswith("/")
    assert not path.startswith(("//", "/\\"))
    assert "\n" not in path


def test_every_page_is_served() -> None:
    folder = Path(dashboard.__file__).parent / "pages"
    sources = [path.read_text("utf-8") for path in folder.glob("*.py")]
    paths = [path for text in sources for path in re.findall(r"register_page\(\s*\"(.+?)\"", text)]
    assert len(paths) > 7
    assert [path for path in paths if not is_dashboard_path(path)] == []


def test_texts_are_translated() -> None:
    folder = Path(dashboard.__file__).parent
    sources = [path.read_text("utf-8") for path in folder.rglob("*.py")]
    names_used = {name for text in sources for name in re.findall(r"\btext\(\s*\"(\w+)\"", text)}
    assert names_used <= WORDS.keys()
    for english, chinese in WORDS.values():
        assert set(re.findall(r"{\w+}", english)) == set(re.findall(r"{\w+}", chinese))
        assert english.strip()
        assert chinese.strip()


def test_no_content_is_rendered_as_html() -> None:
    folder = Path(dashboard.__file__).parent
    risky = re.compile(
        r"ui\.(html|markdown|add_body_html|add_head_html|run_javascript)\b|innerHTML"
    )
    own = 'ui.add_head_html(f"<script>{_KEYS}</script>")'  # keys.js, a file of the package
    texts = {path.name: path.read_text("utf-8") for path in folder.rglob("*.py")}
    files = {name for name, text in texts.items() if risky.search(text.replace(own, ""))}
    assert files == set()


@pytest.mark.service
@pytest.mark.concurrent
def test_server_import_does_not_load_nicegui() -> None:
    code = "import sys, memrecall.server.runner; print('nicegui' in sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "False\n"
