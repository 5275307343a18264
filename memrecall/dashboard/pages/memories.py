"""The explorer's memories: listed and searched; one of them with its history and its recalls."""

from datetime import tzinfo
from typing import Any

from nicegui import ui

from memrecall.dashboard.frame import draw_tabs, page
from memrecall.dashboard.pages.recalls import draw_outcome
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import (
    ask_first,
    card,
    dim,
    fact,
    moment,
    note,
    pager,
    row,
    title,
    user_zone,
)
from memrecall.search import SearchRequest
from memrecall.store import MemoryQuery, Revision
from memrecall.types import MemoryRecord

PAGE_SIZE = 25
STATES = ("current", "superseded", "deleted")
ACTOR = "dashboard"


@page("/explorer/memories", "memories")
async def memories(visit: Visit) -> None:
    """A user's memories, the latest first, or those that fit a search."""
    if not await draw_tabs(visit):
        return
    state = visit.asked.get("state", "current")
    _draw_search(visit)
    with row():
        for name in STATES:
            chip = ui.link(visit.say(f"state_{name}"), visit.link_here(state=name, cursor=None))
            chip.classes("mr-chip").props("aria-current=page" if name == state else "")
    scope, zone = await visit.scope(), await user_zone(visit)
    with card():
        if visit.asked.get("q", "").strip():
            await _draw_found(visit, zone)
            return
        wanted = MemoryQuery(superseded=state == "superseded", deleted=state == "deleted")
        kept = visit.library.store.memory_list(scope)
        found = await kept.page(wanted, limit=PAGE_SIZE, cursor=visit.asked.get("cursor"))
        if not found.items:
            note(visit.say("no_memories"))
        with ui.element("div").classes("mr-list"):
            for item in found.items:
                draw_memory(visit, item, zone)
        pager(visit, found.next_cursor)


def _draw_search(visit: Visit) -> None:
    with ui.element("form").classes("mr-row").props("method=get role=search"):
        hidden = ui.element("input").props("type=hidden name=user")
        hidden.props["value"] = visit.user
        field = ui.input(visit.say("search_memories"), value=visit.asked.get("q", ""))
        field.props("name=q outlined dense clearable").classes("mr-grow")
        ui.button(visit.say("search"), icon="search").props("type=submit unelevated")


async def _draw_found(visit: Visit, zone: tzinfo) -> None:
    scope = await visit.scope()
    request = SearchRequest(visit.asked["q"].strip(), kind="memory", limit=PAGE_SIZE)
    page = await visit.library.search(scope, request)
    visit.service.metrics.count_search("memories")
    kept = visit.library.store.memories(scope)
    records = {item.memory_key: item for item in await kept.get_many([h.key for h in page.results])}
    if not page.results:
        note(page.message or visit.say("nothing_found"))
    with ui.element("div").classes("mr-list"):
        for hit in page.results:
            if hit.key in records:
                draw_memory(visit, records[hit.key], zone, hit.score)


def draw_memory(visit: Visit, item: MemoryRecord, zone: tzinfo, score: float | None = None) -> None:
    """A line of a list of memories."""
    with ui.element("div").classes("mr-item"):
        target = visit.link("/explorer/memory", user=visit.user, key=item.memory_key)
        ui.link(item.content[:300], target)
        if item.superseded_by:
            ui.label(visit.say("superseded")).classes("mr-badge mr-warn")
        if item.deleted_at is not None:
            ui.label(visit.say("deleted")).classes("mr-badge mr-bad")
        if item.sensitive:
            ui.label(visit.say("sensitive")).classes("mr-badge")
        if score is not None:
            dim(f"{score:.2f}")
        dim(f"{item.memory_type} · {moment(item.created_at, zone)}")


@page("/explorer/memory", "memory")
async def memory(visit: Visit) -> None:
    """One memory: what it says, where it came from, what became of it, which recalls knew it."""
    scope, zone = await visit.scope(), await user_zone(visit)
    store, key = visit.library.store, visit.asked.get("key", "")
    item = await store.memory_list(scope).get(key)
    ui.link(visit.say("memories"), visit.link("/explorer/memories", user=visit.user))
    title(item.content[:400])
    _draw_facts(visit, item, zone)
    _draw_actions(visit, item)
    with card(visit.say("history")):
        for step in await store.history(scope, key):
            _draw_step(visit, step, zone)
    with card(visit.say("came_from")):
        said = {m.message_id: m for m in await store.timeline(scope).get_many(_sources(item))}
        if not item.source_message_ids:
            note(visit.say("no_sources"))
        for message_id in _sources(item):
            text = said[message_id].content[:300] if message_id in said else message_id
            ui.link(text, visit.link("/explorer", user=visit.user, around=message_id))
    await _draw_recalls(visit, key, zone)


def _sources(item: MemoryRecord) -> list[str]:
    return list(item.source_message_ids[:50])


def _draw_facts(visit: Visit, item: MemoryRecord, zone: tzinfo) -> None:
    with row():
        fact(visit.say("key_name"), item.memory_key)
        fact(visit.say("memory_type"), item.memory_type)
        fact(visit.say("layer"), item.layer)
        fact(visit.say("subject"), item.subject or "–")
        fact(visit.say("valid_from"), moment(item.since, zone))
        if item.valid_to is not None:
            fact(visit.say("valid_to"), moment(item.valid_to, zone), "mr-warn")
        fact(visit.say("origin"), f"{item.provenance.origin.value}, {item.provenance.actor}")
        if item.keywords:
            fact(visit.say("keywords"), ", ".join(k.keyword for k in item.keywords[:12]))
    if item.superseded_by:
        with row():
            ui.label(visit.say("superseded_because", why=item.superseded_reason or "–"))
            target = visit.link("/explorer/memory", user=visit.user, key=item.superseded_by)
            ui.link(visit.say("what_superseded"), target)
    if item.supersedes:
        target = visit.link("/explorer/memory", user=visit.user, key=item.supersedes)
        ui.link(visit.say("what_it_superseded"), target)


def _draw_actions(visit: Visit, item: MemoryRecord) -> None:
    """Delete and undo, each after a question."""

    async def delete() -> None:
        scope = await visit.writing()
        await visit.library.store.changes(scope).delete([item.memory_key], actor=ACTOR)
        ui.navigate.reload()

    async def undo() -> None:
        scope = await visit.writing()
        await visit.library.store.changes(scope).undo(item.memory_key, actor=ACTOR)
        await visit.library.vectors.top_up(scope.user_id)
        ui.navigate.reload()

    async def ask(question: str, name: str, do: Any) -> None:
        await ask_first(visit, visit.say(question, text=item.content[:200]), visit.say(name), do)

    with row():
        if item.deleted_at is None:
            ui.button(
                visit.say("delete"),
                icon="delete",
                on_click=lambda: ask("ask_delete", "delete", delete),
            ).props("outline color=negative")
        ui.button(
            visit.say("undo"), icon="undo", on_click=lambda: ask("ask_undo", "undo", undo)
        ).props("outline")


def _draw_step(visit: Visit, step: Revision, zone: tzinfo) -> None:
    with ui.element("div").classes("mr-evidence"):
        with row():
            ui.label(step.event).classes("mr-badge")
            dim(f"{moment(step.at, zone)} · {step.actor}")
            if step.undone:
                ui.label(visit.say("undone")).classes("mr-badge mr-warn")
        if step.old_text and step.new_text != step.old_text:
            ui.label(step.old_text[:600]).classes("mr-text mr-old")
        if step.new_text:
            ui.label(step.new_text[:600]).classes("mr-text")
        if step.reason:
            dim(visit.say("because", why=step.reason))
        if step.other_key:
            target = visit.link("/explorer/memory", user=visit.user, key=step.other_key)
            ui.link(step.other_key, target).classes("mr-small")


async def _draw_recalls(visit: Visit, key: str, zone: tzinfo) -> None:
    scope = await visit.scope()
    with card(visit.say("its_recalls")):
        found = await visit.library.store.traces(scope).find_mentions(key)
        if not found:
            note(visit.say("never_recalled"))
        for item in found[:PAGE_SIZE]:
            with ui.element("div").classes("mr-item"):
                target = visit.link("/recalls/trace", user=visit.user, id=item.trace_id)
                ui.link(item.query[:200] or item.trace_id, target)
                draw_outcome(visit, item)
                dim(moment(item.created_at, zone))
