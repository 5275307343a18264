"""Four clients with a real service: past sessions of two projects, ten prompts each."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memrecall.integrations.hooks import client
from tests.hooks.hook_process import Hook, bind
from tests.hooks.payloads import samples
from tests.hooks.test_brief import make_repository
from tests.server.server_process import run_command, run_server

# What was said in a past session, what is asked later, and a word of the right block.
SHOP = [
    ("The staging database of the shop listens on port 5544", "Which port has staging?", "5544"),
    ("We deploy the shop with make ship from the release branch", "How do we deploy?", "make ship"),
    ("The cart expires after 36 hours, Joyce decided", "When does the cart expire?", "36 hours"),
    ("Refunds go through the ledger service, never Stripe", "How do refunds work?", "ledger"),
    ("The VAT table is in tax/rates.toml", "Where is the VAT table?", "rates.toml"),
    ("结算页面的负责人是王芳", "结算页面由谁负责？", "王芳"),
    ("Feature flags are read from flags.yaml at startup", "Where are feature flags?", "flags.yaml"),
    ("支付超时设为 45 秒", "支付超时是多少秒？", "45"),
    ("Our load test runs every Tuesday at 3am", "When does the load test run?", "Tuesday"),
    ("The webhook secret rotates monthly by cron on host badger", "Which host rotates?", "badger"),
]
BLOG = [
    ("The blog is built with Hugo 0.128", "Which Hugo version builds the blog?", "0.128"),
    ("Images are resized by the thumbor container", "What resizes images?", "thumbor"),
    ("评论系统用的是 Giscus", "评论系统用的是什么？", "Giscus"),
]
NOISE = "Rename the helper in module {0} and run its tests"


def write_sessions(home: Path, folder: Path, name: str, told: list[str]) -> None:
    """Write twenty transcripts of Claude Code for a project: facts, then other work."""
    place = home / ".claude" / "projects" / name
    place.mkdir(parents=True)
    said = told + [NOISE.format(f"{name}{n}") for n in range(20 - len(told))]
    for number, text in enumerate(said):
        ts = datetime.now(UTC) - timedelta(days=number + 1)
        common = {"sessionId": f"{name}-{number}", "cwd": str(folder), "isSidechain": False}
        entries = [("user", text), ("assistant", "Understood.")]
        lines: list[dict[str, Any]] = [
            {
                **common,
                "type": role,
                "uuid": f"{name}-{number}-{place}",
                "parentUuid": f"{name}-{number}-{place - 1}" if place else None,
                "timestamp": (ts + timedelta(seconds=place)).isoformat().replace("+00:00", "Z"),
                "message": {"role": role, "content": content},
            }
            for place, (role, content) in enumerate(entries)
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (home / ".claude" / "projects" / name / f"{name}-{number}.jsonl").write_text(text)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "shop", "git@github.com:acme/shop.git")


@pytest.fixture
def blog(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "blog", "git@github.com:acme/blog.git")


@pytest.fixture
def url(tmp_path: Path, shop: Path, blog: Path) -> Iterator[str]:
    """A service whose user has imported forty past sessions."""
    write_sessions(tmp_path, shop, "shop", [told for told, _, _ in SHOP])
    write_sessions(tmp_path, blog, "blog", [told for told, _, _ in BLOG])
    db, local = tmp_path / "chat.db", {"MEMRECALL_EMBEDDER": "local"}
    command = ("import", "--client", "claude-code", "--user", "ann", "--db", db, "--json")
    done = run_command(tmp_path, *command, **local)
    assert done.returncode == 0, done.stderr
    projects = json.loads(done.stdout)["projects"]
    assert {name: each["sessions"] for name, each in projects.items()} == {
        "github.com/acme/shop": 20,
        "github.com/acme/blog": 20,
    }
    with run_server(tmp_path, "--db", db, MEMRECALL_DASHBOARD="false", **local) as server:
        yield server.url


async def ask(hook: Hook, name: str, folder: Path, session: str, prompt: str) -> str:
    rows = samples(prompt, "", str(folder))
    sample = next(each for each in rows if each.client == name and each.recalls)
    ids = dict.fromkeys(("session_id", "conversation_id"), session)
    return await hook.run(sample.event, {**sample.payload, **ids})


@pytest.mark.service
@pytest.mark.concurrent
async def test_past_sessions_answer_prompts_of_every_client(
    url: str, tmp_path: Path, shop: Path, blog: Path
) -> None:
    for name in ("claude-code", "codex", "cursor", "gemini"):
        hook = bind(tmp_path, name, url=url, capture=False)
        right = {}
        for _, asked, word in SHOP:
            block = await ask(hook, name, shop, "new", asked)
            right[asked] = json.dumps(word)[1:-1] in block
        assert sum(right.values()) >= 8, (name, right)
        assert await ask(hook, name, shop, "new", "fix the failing test") == ""
        elsewhere = [await ask(hook, name, blog, "new", asked) for _, asked, _ in SHOP]
        for (told, _, word), block in zip(SHOP, elsewhere, strict=True):
            assert json.dumps(word)[1:-1] not in block, told
        assert {line["model_calls"] for line in hook.receipts} == {0}
        assert hook.log == []
        assert not client.is_locked(str(hook.path))  # no helper beside a service
