"""The explorer's messages: a conversation to read, search in, and look around in."""

from datetime import tzinfo

from nicegui import ui

from memrecall.dashboard.frame import draw_tabs, page
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import (
    MARK_AFTER,
    MARK_BEFORE,
    button_link,
    card,
    dim,
    marked_text,
    moment,
    note,
    pager,
    row,
    user_zone,
)
from memrecall.search import LexicalQuery, SemanticQuery
from memrecall.store import MemoryQuery, MessageFilter
from memrecall.text.query import parse_query, positive_words
from memrecall.text.snippets import snippets
from memrecall.text_length import truncate_text
from memrecall.types import Message, Role, parse_time

PAGE_SIZE = 25
FOUND_SIZE = 15
AROUND = 8
LONGEST_SHOWN = 1_500
_FILTERS = ("q", "by", "role", "session", "since", "until")
_MEMORIES_READ = 100
_ROLES = tuple(role.value for role in Role)


@page("/explorer", "explorer")
async def messages(visit: Visit) -> None:
    """What was said: page by page, found by words or meaning, or around one message."""
    if not await draw_tabs(visit):
        return
    zone = await user_zone(visit)
    _draw_filters(visit)
    if visit.asked.get("around"):
        await _draw_around(visit, zone)
    elif visit.asked.get("q", "").strip():
        await _draw_found(visit, zone)
    else:
        await _draw_page(visit, zone)


def _draw_filters(visit: Visit) -> None:
    """A form that is sent as forms are: what is looked for stands in the address."""
    asked = visit.asked
    with ui.element("form").classes("mr-form").props("method=get role=search"):
        hidden = ui.element("input").props("type=hidden name=user")
        hidden.props["value"] = visit.user
        field = ui.input(visit.say("search_messages"), value=asked.get("q", ""))
        field.props("name=q outlined dense clearable").classes("mr-wide")
        field.props["placeholder"] = visit.say("query_hint")
        ways = {"words": visit.say("by_words"), "meaning": visit.say("by_meaning")}
        _select(visit.say("search_by"), "by", ways, asked.get("by", "words"))
        roles = {"": visit.say("any"), **{role: role for role in _ROLES}}
        _select(visit.say("role"), "role", roles, asked.get("role", ""))
        for name in ("session", "since", "until"):
            made = ui.input(visit.say(f"filter_{name}"), value=asked.get(name, ""))
            made.props(f"name={name} outlined dense")
            if name != "session":
                made.props["placeholder"] = "2026-01-31"
        ui.button(visit.say("search"), icon="search").props("type=submit unelevated")


def _select(label: str, name: str, options: dict[str, str], value: str) -> None:
    shown = value if value in options else next(iter(options))
    made = ui.select(options, label=label, value=shown).props("outlined dense options-dense")
    # The list shows names, the form sends values: they travel in a field of their own.
    sent = ui.element("input").props(f"type=hidden name={name}")
    sent.props["value"] = shown

    def follow() -> None:
        sent.props["value"] = made.value
        sent.update()

    made.on_value_change(follow)


def _filter(visit: Visit) -> MessageFilter:
    asked = visit.asked
    since, until = (
        parse_time(asked[name], name) if asked.get(name) else None for name in ("since", "until")
    )
    role = Role(asked["role"]) if asked.get("role") in _ROLES else None
    return MessageFilter(since, until, role, asked.get("session") or None)


async def _draw_page(visit: Visit, zone: tzinfo) -> None:
    scope = await visit.scope()
    found = await visit.library.store.timeline(scope).page(
        _filter(visit), page_size=PAGE_SIZE, cursor=visit.asked.get("cursor")
    )
    with card():
        if not found.items:
            note(visit.say("no_messages"))
        for message in reversed(found.items):
            draw_message(visit, message, zone)
        pager(visit, found.next_cursor)


async def _draw_found(visit: Visit, zone: tzinfo) -> None:
    scope = await visit.scope()
    text, wanted = visit.asked["q"].strip(), _filter(visit)
    if visit.asked.get("by") == "meaning":
        words: list[str] = []
        by_meaning = SemanticQuery(text, filter=wanted, top_k=FOUND_SIZE)
        found = await visit.library.nearest_messages(scope, by_meaning)
    else:
        words = positive_words(parse_query(text))
        by_words = LexicalQuery(text, wanted, FOUND_SIZE, visit.asked.get("cursor"))
        found = await visit.library.find_messages(scope, by_words)
    visit.service.metrics.count_search("semantic" if not words else "lexical")
    with card(visit.say("found_messages")):
        if not found.items:
            note(visit.say("nothing_found"))
        for item in found.items:
            draw_message(visit, item.message, zone, words, score=item.score)
        pager(visit, found.next_cursor)


async def _draw_around(visit: Visit, zone: tzinfo) -> None:
    scope = await visit.scope()
    key = visit.asked["around"]
    timeline = visit.library.store.timeline(scope)
    found = (await timeline.neighbors(key, before=AROUND, after=AROUND)).items
    visit.service.metrics.count_search("neighbors")
    with card(visit.say("around")):
        with row():
            button_link(
                visit.say("all_messages"), visit.link("/explorer", user=visit.user), "forum"
            )
            earlier, later = found[0].message_id, found[-1].message_id
            button_link(visit.say("earlier"), visit.link_here(around=earlier), "expand_less")
            button_link(visit.say("later"), visit.link_here(around=later), "expand_more")
        for message in found:
            draw_message(visit, message, zone, is_anchor=message.message_id == key)
    anchor = next(message for message in found if message.message_id == key)
    await _draw_learnt(visit, anchor, {message.message_id for message in found})


async def _draw_learnt(visit: Visit, anchor: Message, shown: set[str]) -> None:
    """The memories of the session that came from what is shown."""
    scope = await visit.scope()
    wanted = MemoryQuery(session_id=anchor.session_id, superseded=True)
    kept = await visit.library.store.memory_list(scope).page(wanted, limit=_MEMORIES_READ)
    learnt = [item for item in kept.items if shown.intersection(item.source_message_ids)]
    with card(visit.say("learnt_here")):
        if not learnt:
            note(visit.say("nothing_learnt"))
        for item in learnt:
            target = visit.link("/explorer/memory", user=visit.user, key=item.memory_key)
            ui.link(item.content[:300], target)


def draw_message(
    visit: Visit,
    message: Message,
    zone: tzinfo,
    words: list[str] | None = None,
    *,
    score: float | None = None,
    is_anchor: bool = False,
) -> None:
    """One message as part of a conversation; the words that were searched for are marked."""
    mine = " mr-mine" if message.role is Role.USER else ""
    anchor = " mr-anchor" if is_anchor else ""
    with ui.element("article").classes(f"mr-message{mine}{anchor}"):
        with row():
            ui.label(message.speaker or message.role.value).classes("mr-speaker")
            target = visit.link("/explorer", user=visit.user, around=message.message_id)
            ui.link(moment(message.ts, zone), target).classes("mr-small")
            session = visit.link("/explorer", user=visit.user, session=message.session_id)
            ui.link(message.session_id, session).classes("mr-small mr-dim")
            if score is not None:
                dim(f"{score:.2f}")
            if message.content_type != "text":
                dim(message.content_type)
        marked_text(_shown(message.content, words or []))


def _shown(content: str, words: list[str]) -> str:
    if words:
        marks = {"before": MARK_BEFORE, "after": MARK_AFTER}
        return "\n".join(snippets(content, words, length=240, limit=1, **marks))
    return truncate_text(content, LONGEST_SHOWN)
