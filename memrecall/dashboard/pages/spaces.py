"""Shared spaces: the list, one space with its members and changes, and who can see a row."""

from functools import partial

from nicegui import ui

from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import SPACE, Page
from memrecall.dashboard.pages.user import draw_changes, name_actors
from memrecall.dashboard.widgets import (
    button_link,
    card,
    confirm,
    dim_label,
    draw_button,
    draw_user_field,
    icon_button,
    open_dialog,
    row,
    select_user,
    show_empty,
    show_fact,
    show_title,
)
from memrecall.scope import TRUSTED, Scope, SpaceRole, space_not_found
from memrecall.server.auth import KEY_ACTOR
from memrecall.store.spaces import Member, Space


@register_page("/spaces", "spaces")
async def show_spaces(page: Page) -> None:
    """Show the spaces of the user and the key; an operator sees all."""
    show_title(page.text("spaces"))
    dim_label(page.text("spaces_hint"))
    if await page.sees_all_spaces():
        with ui.element("form").classes("mr-row mr-user").props("method=get"):
            draw_user_field(page, await page.find_users(), page.text("all_users"))
            ui.button(page.text("show")).props("type=submit outline")
        spaces = await page.library.store.spaces.list_all()
    else:
        await select_user(page)
        members = [scope.member or scope.user_id for scope in await page.member_scopes()]
        found = [await page.library.store.spaces.list_of(member) for member in members]
        spaces = list(
            {space.space_id: space for each in reversed(found) for space in each}.values()
        )
    with card():
        if not spaces:
            show_empty(page.text("no_spaces"))
        with ui.element("div").classes("mr-list"):
            for space in spaces:
                _draw_space(page, space)


def _draw_space(page: Page, space: Space) -> None:
    with ui.element("div").classes("mr-item"):
        ui.link(space.name, page.user_link(SPACE, space=space.space_id))
        if space.role is not None:
            ui.label(page.term("space_role", space.role)).classes("mr-badge")
        dim_label(space.space_id)
        if space.description:
            ui.label(space.description).classes("mr-text full-width")


@register_page(SPACE, "space")
async def show_space(page: Page) -> None:
    """Show one space: its description, members and latest changes."""
    if not page.space:
        raise space_not_found()
    scope = await page.scope()
    space = await page.library.store.spaces.get(scope)
    if not page.user:  # with a user, the frame has logged it
        await page.log_read()
    ui.link(page.text("spaces"), page.user_link("/spaces"))
    show_title(space.name)
    if space.description:
        ui.label(space.description).classes("mr-text")
    is_member = scope.member != TRUSTED
    with row():
        show_fact(page.text("space_id"), space.space_id)
        if is_member and space.role is not None:
            show_fact(page.text("your_role"), page.term("space_role", space.role))
        show_fact(page.text("created"), f"{space.created_at:%Y-%m-%d}")
    with row():
        for name, path, icon in (
            ("messages", "/explorer", "forum"),
            ("memories", "/explorer/memories", "psychology"),
        ):
            if is_member:
                button_link(page.text(name), page.user_link(path), icon)
    await _draw_members(page, scope)
    await draw_changes(page)


async def _draw_members(page: Page, scope: Scope) -> None:
    is_admin = scope.role is SpaceRole.ADMIN
    with card(page.text("members")):
        dim_label(page.text("role_hint"))
        with ui.element("div").classes("mr-list"):
            for member in await page.library.store.spaces.members(scope):
                with ui.element("div").classes("mr-item"):
                    _draw_member(page, member)
                    if is_admin:
                        edit = partial(_edit_member, page, member)
                        icon_button(page, "edit_member", "edit", edit, member=member.member)
                    if is_admin or member.member == scope.member:
                        is_self = member.member == scope.member
                        _draw_removal(page, member.member, is_self=is_self)
        if is_admin:
            with row():
                draw_button(page, "add_member", partial(_edit_member, page, None), "person_add")


def _draw_member(page: Page, member: Member) -> None:
    name = f"{member.name} ({member.member})" if member.name else member.member
    ui.label(name).classes("mr-grow")
    ui.label(page.term("space_role", member.role)).classes("mr-badge")
    text = "member_since" if member.granted_by else "founder_since"
    dim_label(page.text(text, day=f"{member.created_at:%Y-%m-%d}", by=member.granted_by))


async def _edit_member(page: Page, member: Member | None) -> None:
    """Ask for a new member, or for the role and name of one, and store them."""
    key = member.member if member else ""
    title = page.text("edit_member", member=key) if member else page.text("add_member")
    async with open_dialog(page, title, page.text("save")) as wait:
        look = "outlined dense"
        field = ui.input(page.text("member")).props(look).classes("full-width") if not key else None
        roles = {role.value: page.term("space_role", role) for role in SpaceRole}
        current = member.role if member else SpaceRole.READER
        role = ui.select(roles, label=page.text("your_role"), value=current.value).props(look)
        name = ui.input(page.text("member_name"), value=(member and member.name) or "").props(look)
        for element in (role, name):
            element.classes("full-width")
        is_confirmed = await wait()
    if is_confirmed:
        scope = await _admin_scope(page)
        chosen = key or ((field and field.value) or "").strip()
        spaces = page.library.store.spaces
        await spaces.set_member(scope, chosen, role.value, (name.value or "").strip() or None)
        ui.navigate.reload()


def _draw_removal(page: Page, member: str, *, is_self: bool) -> None:
    name = "leave_space" if is_self else "remove_member"

    async def remove(_: bool) -> None:
        scope = await page.writable_scope() if is_self else await _admin_scope(page)
        await page.library.store.spaces.remove_member(scope, member)
        ui.navigate.to(page.user_link("/spaces") if is_self else page.url)

    async def ask() -> None:
        question, action = (page.text(text, member=member) for text in (f"ask_{name}", name))
        await confirm(page, question, action, remove, removes=True)

    icon_button(page, name, "logout" if is_self else "person_remove", ask, member=member)


async def _admin_scope(page: Page) -> Scope:
    scope = await page.writable_scope()
    scope.require_role(SpaceRole.ADMIN)  # an operator who is no member only looks
    return scope


def draw_who_can_see(page: Page, key: str) -> None:
    """Draw a panel that says, when it is opened, who can read a memory or message."""

    async def fill() -> None:
        if not panel.value:
            return
        answer = await (await page.memory()).who_can_see(key)
        keys = {f"{KEY_ACTOR}{each['key_id']}": each for each in answer["keys"]}
        names = await name_actors(page, set(keys))
        members = await page.library.store.spaces.members(await page.scope()) if page.space else []
        details.clear()
        with details:
            text = "who_members" if page.space else "who_keys" if keys else "who_open"
            ui.label(page.text(text, space=page.space, user=page.user))
            for member in members:
                with ui.element("div").classes("mr-item"):
                    _draw_member(page, member)
            for actor, each in keys.items():
                with row():
                    ui.label(names[actor])
                    if each["read_only"]:
                        ui.label(page.text("key_read_only")).classes("mr-badge")

    panel = ui.expansion(page.text("who_can_see"), icon="visibility", on_value_change=fill)
    panel.classes("mr-expansion").props("dense")
    with panel:
        details = ui.element("div").classes("mr-list mr-details").props("role=status")
