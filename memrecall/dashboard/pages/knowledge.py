"""The knowledge of agents: a list, search, and one entry."""

import json
from collections.abc import Sequence

from nicegui import ui

from memrecall.agent.tools.context import NO_USER
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, Page
from memrecall.dashboard.widgets import (
    button_link,
    card,
    chip_link,
    dim_label,
    row,
    search_form,
    show_empty,
    show_fact,
    show_title,
)
from memrecall.library.knowledge import KnowledgeBase
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.store import KnowledgeEntry
from memrecall.types import format_minute

_MAX_AGENTS = 50
_MAX_CHARS = 300
_MAX_QUERY = 1_000  # characters


@register_page("/knowledge", "knowledge")
async def show_knowledge(page: Page) -> None:
    """Show the entries of an agent by key, or search results."""
    show_title(page.text("knowledge"))
    base = await _open_base(page)
    await _draw_agents(page)
    with search_form(page, "search_knowledge", "agent", "user"):
        pass
    text = page.query.get("q", "").strip()[:_MAX_QUERY]
    after = page.query.get("after", "")
    results: Sequence[tuple[KnowledgeEntry, float | None]]
    with card():
        if text:
            results = await base.search(text, ROWS_PER_PAGE)
            page.service.metrics.count_search("knowledge")
        else:
            results = [(entry, None) for entry in await base.page(after, ROWS_PER_PAGE + 1)]
        if not results:
            show_empty(page.text("nothing_found" if text else "no_knowledge"))
        with ui.element("div").classes("mr-list"):
            for entry, score in results[:ROWS_PER_PAGE]:
                _draw_entry(page, entry, score)
        if len(results) > ROWS_PER_PAGE:
            last = results[ROWS_PER_PAGE - 1][0].knowledge_key
            button_link(page.text("more"), page.link_here(after=last), "chevron_right")


async def _open_base(page: Page) -> KnowledgeBase:
    """Return the knowledge of the agent that the page shows."""
    principal = await page.principal()
    scope = Scope(NO_USER, await _find_agent(page), permissions=principal.permissions)
    return KnowledgeBase(page.library, scope)


async def _find_agent(page: Page) -> str:
    """Return the agent of the key, which an operator without one chooses."""
    principal = await page.principal()
    can_choose = principal.agent_id is None and Permission.OPERATOR in principal.permissions
    chosen = page.query.get("agent") if can_choose else principal.agent_id
    return chosen or DEFAULT_NAME


async def _draw_agents(page: Page) -> None:
    principal = await page.principal()
    if principal.agent_id is not None or Permission.OPERATOR not in principal.permissions:
        return
    agents = (await page.library.store.owners.list_agents(limit=_MAX_AGENTS)).items
    current = await _find_agent(page)
    if len(agents) > 1:
        with row():
            for agent in agents:
                name = agent["agent_id"]
                target = page.link(page.path, agent=name)
                chip_link(page.text("of_agent", agent=name), target, is_current=name == current)


def _draw_entry(page: Page, entry: KnowledgeEntry, score: float | None) -> None:
    with ui.element("div").classes("mr-item"):
        agent = page.query.get("agent")
        target = page.link("/knowledge/entry", agent=agent, key=entry.knowledge_key)
        ui.link((entry.summary or entry.content)[:_MAX_CHARS], target)
        for tag in entry.tags:
            ui.label(tag).classes("mr-badge")
        if score is not None:
            dim_label(f"{score:.2f}")
        dim_label(format_minute(entry.updated_at))


@register_page("/knowledge/entry", "knowledge_entry")
async def show_knowledge_entry(page: Page) -> None:
    """Show one entry."""
    entry = await (await _open_base(page)).get(page.query.get("key", ""))
    ui.link(page.text("knowledge"), page.link("/knowledge", agent=page.query.get("agent")))
    show_title(entry.summary or entry.content[:_MAX_CHARS])
    with row():
        show_fact(page.text("key_name"), entry.knowledge_key)
        show_fact(page.text("agent"), entry.agent_id)
        show_fact(page.text("tags"), ", ".join(entry.tags) or "–")
        show_fact(page.text("origin"), entry.actor)
        show_fact(page.text("created"), format_minute(entry.created_at))
        show_fact(page.text("updated"), format_minute(entry.updated_at))
    with card(page.text("content_heading")):
        ui.label(entry.content).classes("mr-text")
    if entry.metadata:
        with card(page.text("metadata")):
            text = json.dumps(entry.metadata, ensure_ascii=False, indent=2)
            ui.label(text).classes("mr-code")
