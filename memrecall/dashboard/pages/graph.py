"""The explorer's knowledge graph, drawn, and the same as a list."""

from typing import Any

from nicegui import ui

from memrecall.dashboard.charts import PALETTE, chart
from memrecall.dashboard.frame import draw_tabs, page
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import button_link, card, dim, note, row
from memrecall.store import StoredRelation
from memrecall.text_length import truncate_text

MOST_RELATIONS = 120
LISTED = 30
_LONGEST_NAME = 24


@page("/explorer/graph", "graph")
async def graph(visit: Visit) -> None:
    """What was learnt last, or what is around one entity."""
    if not await draw_tabs(visit):
        return
    center = visit.asked.get("center", "")
    relations = await _read(visit, center)
    with card(center or visit.say("latest_relations")):
        if center:
            target = visit.link("/explorer/graph", user=visit.user)
            with row():
                button_link(visit.say("whole_graph"), target, "hub")
        if not relations:
            note(visit.say("no_graph"))
            return
        _draw_graph(visit, relations, center)
    with card(visit.say("relations")), ui.element("div").classes("mr-list"):
        for relation in relations[:LISTED]:
            _draw_relation(visit, relation)


async def _read(visit: Visit, center: str) -> list[StoredRelation]:
    kept = visit.library.store.graph(await visit.scope())
    if not center:
        return await kept.latest(MOST_RELATIONS)
    ids = [entity.entity_id for entity in await kept.entities([center])]
    return [relation for _, _, relation in await kept.around(ids, limit=MOST_RELATIONS)]


def _draw_graph(visit: Visit, relations: list[StoredRelation], center: str) -> None:
    ties: dict[str, int] = {}
    for relation in relations:
        for name in (relation.source, relation.destination):
            ties[name] = ties.get(name, 0) + 1
    options: dict[str, Any] = {
        "series": [
            {
                "type": "graph",
                "layout": "force",
                "roam": True,
                "draggable": True,
                "force": {"repulsion": 420, "edgeLength": 110, "layoutAnimation": False},
                "lineStyle": {"color": "#8a93a3", "opacity": 0.9},
                "label": {"show": True, "position": "bottom", "color": "inherit"},
                "edgeLabel": {"show": len(relations) <= 40, "fontSize": 11, "color": "#7b8494"},
                "edgeSymbol": ["none", "arrow"],
                "edgeSymbolSize": 7,
                "data": [_node(name, count, name == center) for name, count in ties.items()],
                "links": [_tie(relation) for relation in relations],
            }
        ]
    }
    drawn = chart(options, visit.say("graph")).classes("mr-tall")

    def go(event: Any) -> None:
        if event.data_type == "node":
            ui.navigate.to(visit.link("/explorer/graph", user=visit.user, center=event.data["id"]))

    drawn.on_point_click(go)


def _node(name: str, count: int, is_center: bool) -> dict[str, Any]:
    shown = truncate_text(name, _LONGEST_NAME)
    color = PALETTE[1] if is_center else PALETTE[0]
    size = min(12 + 4 * count, 44)
    return {"id": name, "name": shown, "symbolSize": size, "itemStyle": {"color": color}}


def _tie(relation: StoredRelation) -> dict[str, Any]:
    label = {"formatter": relation.relationship[:_LONGEST_NAME].replace("{", "(")}
    return {"source": relation.source, "target": relation.destination, "label": label}


def _draw_relation(visit: Visit, relation: StoredRelation) -> None:
    with ui.element("div").classes("mr-item"):
        for name in (relation.source, relation.destination):
            target = visit.link("/explorer/graph", user=visit.user, center=name)
            if name == relation.destination:
                dim(relation.relationship)
            ui.link(name, target).classes("mr-end-of-tie")
        for message_id in relation.source_message_ids[:3]:
            said = visit.link("/explorer", user=visit.user, around=message_id)
            ui.link(visit.say("said_here"), said).classes("mr-small mr-end-of-tie")
