"""The explorer's knowledge graph, as a drawing and as a list."""

from collections import Counter
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
    stored = await page.library.current_graph(await page.scope())
    if center:
        ids = [entity.entity_id for entity in await stored.entities([center])]
        around = await stored.around(ids, limit=_MAX_RELATIONS)
        relations = [relation for _, _, relation in around]
    else:
        relations = await stored.latest(_MAX_RELATIONS)
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
            source, destination = (
                (page.term("entity", name), page.user_link("/explorer/graph", center=name))
                for name in (relation.source, relation.destination)
            )
            ui.link(*source).classes("mr-end-of-tie")
            dim_label(page.term("relation", relation.relationship))
            ui.link(*destination).classes("mr-end-of-tie")
            for message_id in relation.source_message_ids[:3]:
                target = page.user_link("/explorer", around=message_id)
                ui.link(page.text("said_here"), target).classes("mr-small mr-end-of-tie")


def _draw_graph(page: Page, relations: list[StoredRelation], center: str) -> None:
    degrees = Counter(name for each in relations for name in (each.source, each.destination))
    nodes = [
        {
            "id": name,
            "name": truncate_text(page.term("entity", name), _NAME_LENGTH),
            "symbolSize": min(12 + 4 * degree, 44),
            "itemStyle": {"color": PALETTE[1] if name == center else PALETTE[0]},
        }
        for name, degree in degrees.items()
    ]
    links = []
    for relation in relations:
        name = page.term("relation", relation.relationship)
        # The chart would read a brace as the beginning of a placeholder.
        label = {"formatter": name[:_NAME_LENGTH].replace("{", "(")}
        links.append({"source": relation.source, "target": relation.destination, "label": label})
    series = {
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
        "data": nodes,
        "links": links,
    }
    element = chart({"series": [series]}, page.text("graph")).classes("mr-tall")

    def open_node(event: Any) -> None:
        if event.data_type == "node":
            ui.navigate.to(page.user_link("/explorer/graph", center=event.data["id"]))

    element.on_point_click(open_node)
