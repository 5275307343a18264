"""Charts, all of one look: readable in both themes, and drawn without any HTML."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

# Told apart also by who sees few colours.
PALETTE = ("#4477dd", "#dd8822", "#229977", "#bb4466", "#8866cc", "#33a0b5", "#99872e", "#777f8c")
_GREY = "#8a93a3"
_LINE = "rgba(128, 136, 150, .3)"


def chart(options: Mapping[str, Any], name: str) -> ui.echart:
    """A chart; `name` is what it says to who cannot see it."""
    look: dict[str, Any] = {
        "color": list(PALETTE),
        "backgroundColor": "transparent",
        "textStyle": {"color": _GREY},
        "animation": False,
        "aria": {"enabled": True, "label": {"description": name}},
        # Drawn as text on the canvas: what users wrote is never taken as HTML.
        "tooltip": {"renderMode": "richText", "trigger": "item", "confine": True},
    }
    drawn = ui.echart({**look, **options}).classes("mr-chart")
    drawn.props["aria-label"] = name
    return drawn


def axis(name: str = "", **more: Any) -> dict[str, Any]:
    """An axis of values."""
    return {
        "type": "value",
        "name": name,
        "nameTextStyle": {"color": _GREY},
        "axisLabel": {"color": _GREY},
        "axisLine": {"lineStyle": {"color": _LINE}},
        "splitLine": {"lineStyle": {"color": _LINE}},
        **more,
    }


def xy_chart(
    name: str,
    across: Mapping[str, Any],
    up: Mapping[str, Any],
    series: Sequence[Mapping[str, Any]],
) -> ui.echart:
    """Lines, bars or points over two axes."""
    told = [str(each["name"]) for each in series if each.get("name")]
    legend = {"show": len(told) > 1, "textStyle": {"color": _GREY}, "top": 0, "type": "scroll"}
    return chart(
        {
            "grid": {
                "left": 8,
                "right": 16,
                "top": 36 if len(told) > 1 or up.get("name") else 12,
                "bottom": 8,
                "containLabel": True,
            },
            "legend": legend,
            "xAxis": dict(across),
            "yAxis": dict(up),
            "series": [dict(each) for each in series],
            "tooltip": {"renderMode": "richText", "trigger": "axis", "confine": True},
        },
        name,
    )
