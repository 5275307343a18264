"""The explorer's view of a user's data as a whole: the log of changes, export and erasure."""

import json
from functools import partial
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from nicegui import ui

from memrecall.dashboard import widgets
from memrecall.dashboard.auth import SEE_OTHER
from memrecall.dashboard.layout import draw_explorer_head, register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, WORDS, Page
from memrecall.errors import MemrecallError
from memrecall.scope import Permission
from memrecall.server.auth import KEY_ACTOR
from memrecall.server.errors import RequestError
from memrecall.server.http.users import ErasureQuery, ExportQuery, erase_user, export_user
from memrecall.types import format_minute

EXPORT = "/explorer/export"
_COUNTS = ("messages", "memories")


@register_page("/explorer/changes", "changes")
async def show_changes(page: Page) -> None:
    """Show who changed the user's data, and when, the latest first."""
    if not await draw_explorer_head(page):
        return
    await draw_changes(page)


async def draw_changes(page: Page) -> None:
    """Draw the audit log of the user or space of a page."""
    scope, zone = await page.scope(), await widgets.user_time_zone(page)
    log = page.library.store.audit(scope)
    stored = await log.page(limit=ROWS_PER_PAGE, after=page.query.get("after"))
    with widgets.card(page.text("changes")):
        widgets.dim_label(page.text("changes_hint"))
        if not stored.items:
            widgets.show_empty(page.text("no_changes"))
        actors = await name_actors(page, {entry.actor for entry in stored.items})
        for entry in widgets.draw_list(stored.items):
            name, key = f"action_{entry.action}", entry.target or ""
            ui.label(page.text(name) if name in WORDS else entry.action).classes("mr-badge")
            if key and entry.action in ("update", "delete", "undo"):
                ui.link(key, page.user_link("/explorer/memory", key=key))
            else:
                ui.label(key).classes("mr-grow")
            if entry.count > 1:
                widgets.dim_label(page.text("rows_count", count=entry.count))
            at = format_minute(entry.at, zone) if entry.at else ""
            widgets.dim_label(f"{at} · {actors[entry.actor]}")
        if stored.next_after:
            widgets.button_link(
                page.text("older"), page.link_here(after=stored.next_after), "chevron_right"
            )


async def name_actors(page: Page, actors: set[str]) -> dict[str, str]:
    """Return the actors with the names of their keys; others' keys are named to operators."""
    principal = await page.principal()
    is_operator = Permission.OPERATOR in principal.permissions
    keys = [actor for actor in actors if actor.startswith(KEY_ACTOR)]
    ids = [key.removeprefix(KEY_ACTOR) for key in keys if is_operator or key == principal.actor]
    names = await page.library.store.keys.names(ids)
    named = {
        f"{KEY_ACTOR}{key_id}": f"{KEY_ACTOR}{key_id} ({name})" for key_id, name in names.items()
    }
    return {actor: named.get(actor, actor) for actor in actors}


@register_page("/explorer/user", "user_data")
async def show_user_data(page: Page) -> None:
    """Show what is stored of a user, and offer to export or erase it."""
    if not await draw_explorer_head(page):
        return
    scope = await page.scope()
    if scope.agent_id is None:  # the counts include all agents
        counts = await page.library.store.count(scope.user_id)
        with widgets.row():
            for name in _COUNTS:
                widgets.show_fact(page.text(name), str(counts[name]))
        if waiting := await page.library.count_unembedded(scope.user_id):
            widgets.dim_label(page.text("rows_wait", count=waiting))
    await _draw_extraction(page)
    with widgets.card(page.text("export_user")):
        ui.label(page.text("export_hint")).classes("mr-text")
        with widgets.row():
            widgets.draw_button(page, "export_user", partial(_export, page), "download")
    with widgets.card(page.text("erase_user")):
        ui.label(page.text("erase_hint")).classes("mr-text")
        with widgets.row():
            erase, look = partial(_erase, page), "outline color=negative"
            widgets.draw_button(page, "erase_user", erase, "delete_forever", look)


async def _draw_extraction(page: Page) -> None:
    """Draw what starts an extraction of stored messages, how far one is, and those to undo."""
    memory = await page.memory()
    running = {
        job["job_id"]: page.text("extract_progress", read=job["read"], messages=job["messages"])
        for job in await memory.jobs()
        if job.get("kind") == "extraction" and job["state"] == "running"
    }
    with widgets.card(page.text("extract")):
        ui.label(page.text("extract_hint")).classes("mr-text")
        with widgets.row():
            if page.service.model_client is None:
                widgets.dim_label(page.text("extract_no_model"))
            else:
                widgets.draw_button(page, "extract", partial(_extract, page), "psychology")
        for item in widgets.draw_list(await memory.extractions()):
            run, count = str(item["run"]), int(item["messages"])
            ui.label(running.pop(run, "") or page.text("extract_run", messages=count))
            widgets.dim_label(run)
            undo = partial(_undo_extraction, page, run, count)
            widgets.draw_button(page, "undo_extraction", undo, "undo", "flat dense size=sm")
        for progress in running.values():  # they have stored nothing yet
            ui.label(progress)


async def _extract(page: Page) -> None:
    memory = await page.writable_memory()
    counts = await memory.extract_stored(dry_run=True)
    if not counts["messages"]:
        ui.notify(page.text("extract_nothing"))
        return
    shown = {name: f"{counts[name]:,}" for name in ("messages", "calls", "tokens")}
    if await widgets.confirm(page, page.text("ask_extract", **shown), page.text("extract")):
        await (await page.writable_memory()).extract_stored(background=True)
        ui.navigate.reload()


async def _undo_extraction(page: Page, run: str, count: int) -> None:
    question = page.text("ask_undo_extraction", messages=count)
    if await widgets.confirm(page, question, page.text("undo_extraction")):
        await (await page.writable_memory()).undo_extraction(run)
        ui.navigate.reload()


async def _export(page: Page) -> None:
    question = page.text("ask_export_user", user=page.user)
    if await widgets.confirm(page, question, page.text("export_user")):
        # Refused here, where it can be said; the response is made again for the download.
        await export_user(page.user, ExportQuery(), await page.request_context())
        ui.navigate.to(page.user_link(EXPORT))


@ui.page(EXPORT)
async def download_export(request: Request) -> Response:
    """Stream the export of a user as a file; refused requests go back to the page."""
    page = Page.from_request(request)
    try:
        response = await export_user(page.user, ExportQuery(), await page.request_context())
    except (MemrecallError, RequestError):
        return RedirectResponse(page.user_link("/explorer/user"), SEE_OTHER)
    name = quote(f"{page.user}.jsonl", safe="")
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    return response


async def _erase(page: Page) -> None:
    question = page.text("ask_erase_user", user=page.user)
    async with widgets.open_dialog(page, question, page.text("erase_user"), removes=True) as wait:
        name = ui.input(page.text("user")).props("outlined dense autocomplete=off")
        name.classes("full-width")
        is_confirmed = await wait()
    if is_confirmed and (name.value or "").strip() != page.user:
        ui.notify(page.text("other_id"), type="warning")
    elif is_confirmed:
        response = await erase_user(page.user, ErasureQuery(), await page.request_context())
        counts = json.loads(bytes(response.body))
        widgets.go_with_notice("/explorer", "user_erased", sum(counts.values()))
