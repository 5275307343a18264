"""The explorer's knowledge graph, as a drawing and as a list."""

from typing import Any

from nicegui import ui

from memrecall.dashboard.layout import draw_explorer_head, register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import (
    PALETTE,
    TEXT_COLOR,
    button_link,
    card,
    chart,
    dim_label,
    draw_list,
    row,
    show_empty,
)
from memrecall.store import StoredRelation
from memrecall.text_length import truncate_text

_MAX_RELATIONS = 120
MAX_LISTED = 30
_NAME_LENGTH = 24


@register_page("/explorer/graph", "graph")
async def show_graph(page: Page) -> None:
    """Show the latest relations, or the relations of one entity."""
    if not await draw_explorer_head(page):
        return
    center = page.query.get("center", "")
    relations = await _read_relations(page, center)
    with card(page.term("entity", center) or page.text("latest_relations")):
        if center:
            with row():
                button_link(page.text("whole_graph"), page.user_link("/explorer/graph"), "hub")
        if not relations:
            show_empty(page.text("no_graph"))
            return
        _draw_graph(page, relations, center)
    with card(page.text("relations")):
        for relation in draw_list(relations[:MAX_LISTED]):
            _draw_relation(page, relation)


async def _read_relations(page: Page, center: str) -> list[StoredRelation]:
    stored = await page.library.current_graph(await page.scope())
    if not center:
        return await stored.latest(_MAX_RELATIONS)
    ids = [entity.entity_id for entity in await stored.entities([center])]
    return [relation for _, _, relation in await stored.around(ids, limit=_MAX_RELATIONS)]


def _draw_graph(page: Page, relations: list[StoredRelation], center: str) -> None:
    degrees: dict[str, int] = {}
    for relation in relations:
        for name in (relation.source, relation.destination):
            degrees[name] = degrees.get(name, 0) + 1
    options: dict[str, Any] = {
        "series": [
            {
                "type": "graph",
                "layout": "force",
                "roam": True,
                "draggable": True,
                "force": {
                    "repulsion": 420,
                    "edgeLength": 110,
                    "gravity": 0.17,  # keeps what nothing connects inside the drawing
                    "layoutAnimation": False,
                },
                "lineStyle": {"color": "#8a93a3", "opacity": 0.9},
                "label": {"show": True, "position": "bottom", **TEXT_COLOR},
                "edgeLabel": {"show": len(relations) <= 40, "fontSize": 11, **TEXT_COLOR},
                "edgeSymbol": ["none", "arrow"],
                "edgeSymbolSize": 7,
                "data": [
                    _node(page, name, count, name == center) for name, count in degrees.items()
                ],
                "links": [_edge(page, relation) for relation in relations],
            }
        ]
    }
    element = chart(options, page.text("graph")).classes("mr-tall")

    def open_node(event: Any) -> None:
        if event.data_type == "node":
            ui.navigate.to(page.user_link("/explorer/graph", center=event.data["id"]))

    element.on_point_click(open_node)


def _node(page: Page, name: str, degree: int, is_center: bool) -> dict[str, Any]:
    label = truncate_text(page.term("entity", name), _NAME_LENGTH)
    color = PALETTE[1] if is_center else PALETTE[0]
    size = min(12 + 4 * degree, 44)
    return {"id": name, "name": label, "symbolSize": size, "itemStyle": {"color": color}}


def _edge(page: Page, relation: StoredRelation) -> dict[str, Any]:
    name = page.term("relation", relation.relationship)
    label = {"formatter": name[:_NAME_LENGTH].replace("{", "(")}
    return {"source": relation.source, "target": relation.destination, "label": label}


def _draw_relation(page: Page, relation: StoredRelation) -> None:
    for name in (relation.source, relation.destination):
        if name == relation.destination:
            dim_label(page.term("relation", relation.relationship))
        target = page.user_link("/explorer/graph", center=name)
        ui.link(page.term("entity", name), target).classes("mr-end-of-tie")
    for message_id in relation.source_message_ids[:3]:
        source = page.user_link("/explorer", around=message_id)
        ui.link(page.text("said_here"), source).classes("mr-small mr-end-of-tie")
