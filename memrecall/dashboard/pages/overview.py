"""The overview: what is stored, and how the recalls of a period ended; the first visit."""

import json
import shlex
from collections import Counter
from datetime import UTC, datetime, timedelta
from statistics import median

from nicegui import ui

from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.sample import load_sample
from memrecall.dashboard.trace_view import stop_text
from memrecall.dashboard.widgets import (
    card,
    chip_link,
    dim_label,
    draw_button,
    format_duration,
    row,
    select_user,
    show_code,
    show_empty,
    show_fact,
    show_title,
)
from memrecall.errors import NotFound
from memrecall.scope import Permission
from memrecall.server.auth import Principal
from memrecall.store import TraceOutcome
from memrecall.store.traces.trace_list import SCANNED_TRACES

_PERIODS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_USER_COUNTS = ("sessions", "messages", "memories", "current_memories", "traces")


@register_page("/", "overview")
async def show_overview(page: Page) -> None:
    """Show the whole service to an operator, one user to others, and where to begin."""
    show_title(page.text("overview"))
    principal = await page.principal()
    if principal.users is None and not page.user and not await page.find_users():
        _draw_welcome(page, principal)
        return
    if Permission.OPERATOR in principal.permissions and not page.user:
        _draw_counts(page, await page.library.store.estimate_counts())
        await _draw_recalls(page, principal, None)
    elif await select_user(page):
        scope, store = await page.scope(), page.library.store
        counts = await store.count(scope.user_id)
        counts["current_memories"] = await store.memories(scope).count()
        _draw_counts(page, {name: counts[name] for name in _USER_COUNTS})
        await _draw_recalls(page, principal, frozenset({scope.user_id}))


def _draw_counts(page: Page, counts: dict[str, int]) -> None:
    with ui.element("div").classes("mr-tiles"):
        for name, value in counts.items():
            with ui.card().classes("mr-card mr-tile"):
                dim_label(page.text(name))
                ui.label(f"{value:,}").classes("mr-number")


async def _draw_recalls(page: Page, principal: Principal, users: frozenset[str] | None) -> None:
    """Draw how the stored recalls of a period ended: the same ones that the list of recalls has."""
    span = page.query.get("span", "")
    period = span if span in _PERIODS else "week"
    outcomes = await page.library.store.trace_list.outcomes(
        datetime.now(UTC) - _PERIODS[period], users=users, agent_id=principal.agent_id
    )
    with card(page.text("recalls")):
        with row():
            for name in _PERIODS:
                target = page.link_here(span=name)
                chip_link(page.text(f"span_{name}"), target, is_current=name == period)
        if not outcomes:
            show_empty(page.text("nothing_yet"))
            return
        if len(outcomes) == SCANNED_TRACES:
            dim_label(page.text("latest_recalls", count=f"{SCANNED_TRACES:,}"))
        with row():
            for name, value in _summarize(outcomes).items():
                show_fact(page.text(name), value).props(f"data-figure={name}")
    with card(page.text("by_recalls")), row():
        reasons = Counter(outcome.stop_reason for outcome in outcomes)
        for reason, count in reasons.most_common():
            target = page.link("/recalls", user=page.user, reason=reason)
            chip_link(f"{stop_text(page, reason)}: {count:,}", target, is_current=False)


def _summarize(outcomes: list[TraceOutcome]) -> dict[str, str]:
    """Return the figures of some recalls by name; without abstentions, there is no such figure."""
    figures = {"recalls": f"{len(outcomes):,}"}
    if abstained := sum(outcome.abstained for outcome in outcomes):
        figures["abstentions"] = f"{abstained:,} ({abstained / len(outcomes):.0%})"
    seconds = median(outcome.seconds for outcome in outcomes)
    return {**figures, "median_duration": format_duration(seconds)}


def _draw_welcome(page: Page, principal: Principal) -> None:
    """Draw what a visitor of an empty database can do."""
    with card(page.text("welcome")):
        ui.label(page.text("welcome_hint"))
    with ui.element("div").classes("mr-grid mr-halves"):
        if not principal.read_only:
            _draw_sample(page)
        for name, code in _ways_in(page, principal).items():
            with card(page.text(f"way_{name}")):
                ui.label(page.text(f"way_{name}_hint"))
                show_code(page, code)


def _draw_sample(page: Page) -> None:
    async def load() -> None:
        principal = await page.principal()
        principal.require_write()
        if principal.users is not None:
            raise NotFound("the key has no access to the users of the sample")
        button.props("loading")
        await load_sample(page.library)
        ui.navigate.to(page.link("/explorer", user="lin" if page.language == "zh" else "maya"))

    with card(page.text("sample")):
        ui.label(page.text("sample_hint"))
        button = draw_button(page, "load_sample", load, "download", "unelevated")


def _ways_in(page: Page, principal: Principal) -> dict[str, str]:
    """Return the commands that store data here; only operators see the path of the database."""
    location = page.database_file(principal) or "memory.db"
    option = f"--db {shlex.quote(location)}"
    return {
        "import": f"memrecall import conversations.json --user me {option}",
        "python": (
            "from memrecall import Memory\n\n"
            f"memory = Memory(db={json.dumps(location, ensure_ascii=False)})\n"
            'memory.add("I am allergic to peanuts.", user_id="me")\n'
            'print(memory.search("What can I not eat?", user_id="me"))'
        ),
        "mcp": f"claude mcp add memrecall -- memrecall mcp --user me {option}",
    }
