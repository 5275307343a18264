"""What hooks leave alone: ignored folders, and secrets in what is said."""

import json
import time
from pathlib import Path

import pytest

from memrecall.integrations.hooks.bindings import read_binding
from memrecall.integrations.hooks.events import read_event
from memrecall.integrations.hooks.privacy import (
    IGNORE_FILE,
    MASK,
    is_ignored,
    redact_patterns,
    redact_secrets,
)
from tests.cases import check_each
from tests.hooks.hook_process import bind
from tests.hooks.payloads import samples

FOLDERS = ("a", "a/b", "a/b/c", "b", "client-x/src", "src/client-y", "x y", "[k]", "build/out")
# Lines of a file, and which of the folders they exclude; git decides the same.
IGNORED: list[tuple[str, set[str]]] = [
    ("", set()),
    ("# a\n\n", set()),
    ("a", {"a", "a/b", "a/b/c"}),
    ("/b", {"b"}),
    ("b/", {"a/b", "a/b/c", "b"}),
    ("a/b", {"a/b", "a/b/c"}),
    ("**/b", {"a/b", "a/b/c", "b"}),
    ("a/**", {"a/b", "a/b/c"}),
    ("a/**/c", {"a/b/c"}),
    ("**/c", {"a/b/c"}),
    ("client-*", {"client-x/src", "src/client-y"}),
    ("/client-?", {"client-x/src"}),
    ("src/*", {"src/client-y"}),
    ("[ab]", {"a", "a/b", "a/b/c", "b"}),
    ("[!ab]", {"a/b/c"}),
    ("\\[k\\]", {"[k]"}),
    ("x y", {"x y"}),
    ("x\\ y  ", {"x y"}),
    ("/*\n!/a", {"b", "client-x/src", "src/client-y", "x y", "[k]", "build/out"}),
    ("a\n!a/b", {"a", "a/b", "a/b/c"}),  # nothing below an excluded folder comes back
    ("*\n", set(FOLDERS)),
    ("/", set(FOLDERS)),
]


def test_ignore_file_excludes_folders_like_git(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)

    def check(case: tuple[str, set[str]]) -> None:
        (tmp_path / IGNORE_FILE).write_text(case[0], "utf-8")
        assert {folder for folder in FOLDERS if is_ignored(str(tmp_path / folder))} == case[1]

    check_each(IGNORED, check, lambda case: repr(case[0]))


def test_ignore_file_applies_to_its_own_folder_and_links(tmp_path: Path) -> None:
    inside = tmp_path / "top" / "secret" / "src"
    inside.mkdir(parents=True)
    (tmp_path / "link").symlink_to(inside)
    (tmp_path / "top" / IGNORE_FILE).write_text("secret\n")
    assert not is_ignored(str(tmp_path / "top"))
    assert is_ignored(str(tmp_path / "link"))
    assert is_ignored(str(inside / "missing"))
    (tmp_path / "top" / IGNORE_FILE).write_text("*\n")
    assert is_ignored(str(tmp_path / "top"))
    (tmp_path / "top" / "secret" / IGNORE_FILE).write_text("!src\n")  # the nearest file decides …
    (tmp_path / "top" / IGNORE_FILE).write_text("src\n")
    assert not is_ignored(str(inside))
    (tmp_path / "top" / IGNORE_FILE).write_text("secret\n")  # … unless a folder above is excluded
    assert is_ignored(str(inside))


@pytest.mark.concurrent
async def test_session_in_ignored_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / IGNORE_FILE).write_text("/\n")
    hook = bind(tmp_path)
    for sample in samples("Where does my sister live?", "In Lisbon.", str(tmp_path))[:2]:
        assert await hook.run(sample.event, sample.payload) == ""
    assert hook.pending == []
    assert hook.log == []


@pytest.mark.parametrize("ignored", [0, 1, None])
def test_session_with_several_folders_is_left_alone_if_one_is_ignored(
    tmp_path: Path, ignored: int | None
) -> None:
    roots = [tmp_path / "first", tmp_path / "second"]
    for place, root in enumerate(roots):
        root.mkdir()
        (root / IGNORE_FILE).write_text("/\n" if place == ignored else "")
    binding = read_binding(str(bind(tmp_path, "cursor").path))
    sample = next(each for each in samples("Hello", "Hi") if each.client == "cursor")
    payload = {**sample.payload, "workspace_roots": list(map(str, roots))}
    event = read_event(binding, sample.event, json.dumps(payload).encode())
    assert (event is None) == (ignored is not None)


KEY_BLOCK = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAA\n-----END OPENSSH PRIVATE KEY-----"
)
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
SECRETS: dict[str, str] = {
    "use sk-proj-abcdefghijklmnopqrstuvwx now": "use [redacted] now",
    "AKIAIOSFODNN7EXAMPLE, right?": "[redacted], right?",
    f"ghp_{'a1' * 20}": "[redacted]",
    f"github_pat_{'a1' * 20}": "[redacted]",
    f"glpat-{'a1' * 10} xoxb-{'12-' * 10}x": "[redacted] [redacted]",
    f"AIza{'Sy5' * 11}ab": "[redacted]",
    f"sk_live_{'4e' * 12}": "[redacted]",
    f"mr_0123456789abcdef_{'Ab-1' * 10}": "[redacted]",
    f"before\n{KEY_BLOCK}\nafter": "before\n[redacted]\nafter",
    KEY_BLOCK[:60]: "[redacted]",
    f"it is {TOKEN}.": "it is [redacted].",
    f"Authorization: Bearer {'a1' * 12}": "Authorization: Bearer [redacted]",
    "postgresql://ann:hunter2@db/x": "postgresql://ann:[redacted]@db/x",
    "API_KEY=abc123def456": "API_KEY=[redacted]",
    'export DB_PASSWORD="s3cret-enough"': 'export DB_PASSWORD="[redacted]"',
    '{"client_secret": "9f8e7d6c5b"}': '{"client_secret": "[redacted]"}',
    "password: hunter22": "password: [redacted]",
    "密码是 abc12345，别忘了": "密码是 [redacted]，别忘了",
    "密钥：k3y-0f-mine": "密钥：[redacted]",
    "my password is hunter2": "my password is [redacted]",
    "the secret key is s3cr3tvalue, ok?": "the secret key is [redacted], ok?",
    "API_KEY=abcdefghijklmnop": "API_KEY=[redacted]",
    "passwd: correcthorsebattery.": "passwd: [redacted].",
    "我的密码：correcthorse": "我的密码：[redacted]",
    "api key: abc123def456": "api key: [redacted]",
}
HARMLESS = (
    "the token is parsed in tokens.py",
    "password = getpass.getpass()",
    "my password is wrong, and the secret is understanding people",
    "def read(api_key: AuthenticationToken, password=default_password): ...",
    "api_key=settings.api_key",
    "我的密码是什么？",
    "def login(user: str, password: str) -> Token:",
    "rename sk-button to primary-button",
    "see https://example.com/a:b@c and 10:30",
    "-----BEGIN CERTIFICATE-----",
    "我忘了密码，怎么办？",
    "commit 3bd1c18 changes the secret santa page",
    "ask-me-anything-about-the-weather",
)


def test_secrets_are_masked() -> None:
    def check(text: str) -> None:
        assert redact_secrets(text) == SECRETS[text]
        assert redact_secrets(SECRETS[text]) == SECRETS[text]

    check_each(SECRETS, check)


def test_ordinary_text_is_kept() -> None:
    def check(text: str) -> None:
        assert redact_secrets(text) == text

    check_each(HARMLESS, check)


def test_own_patterns_are_masked() -> None:
    assert redact_patterns("case 4711 of ACME", [r"\d+", "ACME"]) == f"case {MASK} of {MASK}"


def test_time_to_mask_grows_with_length_only() -> None:
    """A hostile text is searched by bounded steps: twice the text, about twice the time."""

    def check(part: str) -> None:
        seconds = []
        for length in (10_000, 80_000):
            text = part * (length // len(part))
            start = time.process_time()
            redact_secrets(text)
            seconds.append(time.process_time() - start)
        # Quadratic time would be 64 times as long.
        assert seconds[1] < 24 * seconds[0] + 0.05, seconds

    check_each(("a.", "token=", "密码是", "eyJa", "://a:", KEY_BLOCK[:35], "bearer "), check)
