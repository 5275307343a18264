"""Shared spaces: the list, one space with its members and changes, and who can see a row."""

from functools import partial
from typing import Any

from nicegui import ui

from memrecall.dashboard import widgets
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import SPACE_PAGE, Page
from memrecall.dashboard.pages.user import draw_changes, name_actors
from memrecall.scope import SpaceRole
from memrecall.server.auth import KEY_ACTOR


@register_page("/spaces", "spaces")
async def show_spaces(page: Page) -> None:
    """Show the spaces of the user and of the key; an operator sees all."""
    widgets.show_title(page.text("spaces"))
    store = page.library.store.spaces
    if await page.sees_all_spaces():
        lists = [await store.list_all()]
    else:
        await widgets.select_user(page)
        lists = [await store.list_of(m.member or m.user_id) for m in await page.member_scopes()]
    spaces = {space.space_id: space for each in reversed(lists) for space in each}.values()
    with widgets.card():
        widgets.dim_label(page.text("spaces_hint" if spaces else "no_spaces"))
        for space in spaces:
            with ui.element("div").classes("mr-item"):
                ui.link(space.name, page.user_link(SPACE_PAGE, space=space.space_id))
                if space.role is not None:
                    ui.label(page.term("space_role", space.role)).classes("mr-badge")
                widgets.dim_label(space.space_id)
                ui.label(space.description).classes("mr-text full-width")
    if page.user:
        await _draw_invitations(page)


async def _draw_invitations(page: Page) -> None:
    """Draw what the user is invited to, if anything, with a button for each answer."""
    invitations = await (await page.memory()).invitations()
    if not invitations:
        return
    with widgets.card(page.text("invitations")):
        for item in widgets.draw_list(invitations):
            ui.label(f"{item['name']} ({item['space_id']})").classes("mr-grow")
            ui.label(page.term("space_role", item["role"])).classes("mr-badge")
            widgets.dim_label(page.text("invited_by", **item))
            for name, icon in (("accept", "check"), ("decline", "close")):
                answer = partial(_answer_invitation, page, item["space_id"], name)
                button = widgets.draw_button(page, name, answer, icon)
                button.props["aria-label"] = page.text(f"{name}_space", **item)


async def _answer_invitation(page: Page, space_id: str, answer: str) -> None:
    memory = await page.writable_memory()
    await (memory.accept_invitation if answer == "accept" else memory.decline_invitation)(space_id)
    ui.navigate.reload()


@register_page(SPACE_PAGE, "space")
async def show_space(page: Page) -> None:
    """Show one space: its description, members and latest changes."""
    scope = await page.scope()
    space = await page.library.store.spaces.get(scope)
    ui.link(page.text("spaces"), page.user_link("/spaces"))
    widgets.show_title(space.name)
    ui.label(space.description).classes("mr-text")
    with widgets.row():
        widgets.show_fact(page.text("space_id"), space.space_id)
        widgets.show_fact(page.text("created"), f"{space.created_at:%Y-%m-%d}")
        if scope.author:
            widgets.show_fact(page.text("role"), page.term("space_role", str(scope.role)))
            widgets.button_link(page.text("messages"), page.user_link("/explorer"))
            widgets.button_link(page.text("memories"), page.user_link("/explorer/memories"))
    with widgets.card(page.text("members")):
        widgets.dim_label(page.text("role_hint"))
        spaces = page.library.store.spaces
        for member in (*await spaces.members(scope), *await spaces.invited(scope)):
            with ui.element("div").classes("mr-item"):
                _draw_member(page, member.as_dict())
                if scope.role is SpaceRole.ADMIN:
                    _draw_actions(page, member.as_dict())
        if scope.role is SpaceRole.ADMIN:
            widgets.draw_button(page, "add_member", partial(_edit_member, page, {}), "person_add")
        elif scope.author:
            widgets.draw_button(page, "leave", partial(_leave, page, space.name), "logout")
    await draw_changes(page)


def _draw_member(page: Page, member: dict[str, Any]) -> None:
    name = f"{member['name']} ({member['member']})" if member["name"] else member["member"]
    ui.label(name).classes("mr-grow")
    ui.label(page.term("space_role", member["role"])).classes("mr-badge")
    granted = "granted" if member["granted_by"] else "since"
    text = "invited" if member["status"] == "invited" else granted
    widgets.dim_label(page.text(text, **member))


def _draw_actions(page: Page, member: dict[str, Any]) -> None:
    is_invited = member["status"] == "invited"

    async def remove() -> None:
        question, action = page.text("ask_remove", **member), page.text("remove", **member)
        if is_invited or await widgets.confirm(page, question, action, removes=True):
            scope = await page.writable_scope()
            await page.library.store.spaces.remove_member(scope, member["member"])
            ui.navigate.reload()

    if not is_invited:
        edit = partial(_edit_member, page, member)
        widgets.icon_button(page, "edit_member", "edit", edit, **member)
    name = "withdraw" if is_invited else "remove"
    widgets.icon_button(page, name, "person_remove", remove, **member)


async def _leave(page: Page, name: str) -> None:
    question = page.text("ask_leave", name=name)
    if await widgets.confirm(page, question, page.text("leave"), removes=True):
        scope = await page.writable_scope()
        await page.library.store.spaces.remove_member(scope, str(scope.member))
        ui.navigate.to(page.user_link("/spaces"))


async def _edit_member(page: Page, member: dict[str, Any]) -> None:
    """Ask for a new member, or for the role and name of one, and store them."""
    title = page.text("edit_member" if member else "add_member", **member)
    async with widgets.open_dialog(page, title, page.text("save")) as wait:
        field = ui.input(page.text("member"), value=member.get("member", ""))
        field.set_enabled(not member)
        roles = {role.value: page.term("space_role", role) for role in SpaceRole}
        role = ui.select(roles, label=page.text("role"), value=member.get("role", "reader"))
        name = ui.input(page.text("member_name"), value=member.get("name"))
        for element in (field, role, name):
            element.classes("full-width").props("outlined dense")
        is_confirmed = await wait()
    if is_confirmed:
        values = (field.value or "").strip(), role.value, (name.value or "").strip() or None
        invite = not (await page.principal()).is_admin
        spaces = page.library.store.spaces
        await spaces.set_member(await page.writable_scope(), *values, invite=invite)
        ui.navigate.reload()


def draw_who_can_see(page: Page, key: str) -> None:
    """Draw a panel that says, when it is opened, who can read a memory or message."""

    async def fill() -> None:
        details.clear()
        answer = await (await page.memory()).who_can_see(key)
        keys = {f"{KEY_ACTOR}{each['key_id']}": each["read_only"] for each in answer["keys"]}
        names = await name_actors(page, set(keys))
        with details:
            text = "who_members" if page.space else "who_keys" if keys else "who_open"
            ui.label(page.text(text, space=page.space, user=page.user))
            for member in answer["members"]:
                with ui.element("div").classes("mr-item"):
                    _draw_member(page, member)
            for actor, is_read_only in keys.items():
                note = f" · {page.text('key_read_only')}" if is_read_only else ""
                ui.label(names[actor] + note)

    with ui.expansion(page.text("who_can_see"), icon="visibility") as panel:
        panel.classes("mr-expansion").props("dense").on("before-show", fill)
        details = ui.element("div").classes("mr-list mr-details").props("aria-live=polite")
