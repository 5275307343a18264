"""What `Memory` answers: plain dicts and lists, which a notebook shows as tables.

They are dicts in everything: equal to them, written as JSON as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memrecall.text.html import (
    AMBER,
    DIM,
    GREEN,
    NARROW,
    RED,
    TEXT,
    WIDE,
    Html,
    Say,
    box,
    cell,
    clip,
    folded,
    labels,
    note,
    score_cell,
    short_time,
    table,
    tag,
    warning,
)
from memrecall.text.language import language_of_most
from memrecall.text_length import single_line, truncate_text

Fields = Mapping[str, Any]

_LONGEST_ROW = 300
_EVENT_COLOURS = {"ADD": GREEN, "UPDATE": AMBER, "DELETE": RED}
_LABELS = {
    "ADD": ("added", "新增"),
    "UPDATE": ("updated", "更新"),
    "DELETE": ("deleted", "删除"),
    "UNDO": ("undone", "撤销"),
    "PURGE": ("purged", "清除"),
    "NONE": ("unchanged", "未变"),
    "score": ("score", "得分"),
    "since": ("since", "起始"),
    "when": ("when", "时间"),
    "type": ("type", "类型"),
    "memory": ("memory", "记忆"),
    "event": ("event", "事件"),
    "by": ("by", "来源"),
    "name": ("name", "名称"),
    "aliases": ("also called", "别名"),
    "results": ("results", "条结果"),
    "of": ("of", "/"),
    "nothing": ("nothing here", "没有内容"),
    "no_way": ("no way leads there", "没有通路"),
    "more": ("there are more", "还有更多"),
    "replaced": ("replaced on", "已被取代于"),
    "instead_of": ("instead of", "取代"),
    "taken_back": ("taken back", "已撤销"),
    "sensitive": ("sensitive", "敏感"),
    "pinned": ("pinned", "置顶"),
    "messages": ("messages stored", "已保存的消息"),
    "fields": ("all fields", "全部字段"),
}


class SearchResults(dict[str, Any]):
    """What `search` and `get_all` answer: a dict with `results`."""

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        items: Sequence[Fields] = self["results"]
        say = _say(item["memory"] for item in items)
        scored = any("score" in item for item in items)
        heads = [say(name) for name in ("score", "since", "type", "memory")[not scored :]]
        rows = (_item_row(item, say, scored=scored) for item in items)
        told = [warning(self["message"])] if self.get("message") else []
        told += [note(say("more"))] if self.get("next_cursor") else []
        shown = [table(rows, heads)] if items else []
        return str(box(note(_count(self, say)), *shown, *told))


class MemoryResult(dict[str, Any]):
    """What `get` and `update` answer: a memory or message as a dict."""

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        say = _say([self["memory"]])
        who = self.get("speaker") or self.get("role") or self["memory_type"]
        head = f" · {short_time(_since(self))} · {self['id']}"
        rows = (
            [cell(name, f"{NARROW};{DIM}"), cell(truncate_text(_plain(value), _LONGEST_ROW), WIDE)]
            for name, value in self.items()
            if value not in (None, "", [], {}) and name != "memory"
        )
        return str(
            box(
                tag("div", tag("strong", who), tag("span", head, style=DIM)),
                tag("div", clip(self["memory"], say), style=TEXT),
                *_marks(self, say),
                folded(say("fields"), table(rows)),
            )
        )


class AddResult(dict[str, Any]):
    """What `add` answers: a dict with `results`, `messages`, `relations` and `problems`."""

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        outcomes: Sequence[Fields] = self.get("results", ())
        relations: Sequence[Fields] = self.get("relations", ())
        say = _say(item["memory"] for item in outcomes)
        parts = [f"{say('messages')}: {len(self.get('messages', ())):,}"]
        parts += [self["job_id"], self["state"]] if "job_id" in self else []
        shown = [table(_outcome_row(item, say) for item in outcomes)] if outcomes else []
        shown += [_arrows([relation]) for relation in relations]
        return str(box(note(" · ".join(parts)), *shown, *map(warning, self.get("problems", ()))))


class HistoryResult(list[dict[str, Any]]):
    """What `history` answers: the steps of a memory, the first first."""

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        say = _say(step["new_memory"] or step["old_memory"] or "" for step in self)
        heads = [say(name) for name in ("event", "when", "memory", "by")]
        return str(box(table((_step_row(step, say) for step in self), heads)))


class GraphResult(dict[str, Any]):
    """What `graph` and `extract` answer: a dict with `entities`, `relations` or `paths`."""

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        entities: Sequence[Fields] = self.get("entities", ())
        paths: Sequence[Sequence[Fields]] = self.get("paths", ())
        ways = [*paths, *([relation] for relation in self.get("relations", ()))]
        names = [entity["name"] for entity in entities]
        names += [name for way in ways for step in way for name in _ends(step)]
        say = _say(names)
        shown = [_entities(entities, say)] if entities else []
        shown += map(_arrows, ways)
        nothing = note(say("no_way" if "paths" in self else "nothing"))
        told = map(warning, self.get("problems", ()))
        return str(box(*(shown or [nothing]), *told))


def _say(texts: Iterable[str]) -> Say:
    return labels(_LABELS, language_of_most(texts))


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _count(found: Fields, say: Say) -> str:
    shown = len(found["results"])
    total = found.get("total_found", shown)
    if not shown and not total:
        return say("nothing")
    count = f"{shown:,}" if shown == total else f"{shown:,} {say('of')} {total:,}"
    return f"{count} {say('results')}"


def _since(item: Fields) -> str:
    return str(item.get("valid_from") or item["created_at"])


def _item_row(item: Fields, say: Say, *, scored: bool) -> list[Html]:
    kind = item.get("role") or item["memory_type"]
    said = single_line(item["memory"], _LONGEST_ROW)
    return [
        *([score_cell(item.get("score"))] if scored else []),
        cell(short_time(_since(item)), f"{NARROW};{DIM}"),
        cell(item.get("speaker") or kind),
        tag("td", said, *_marks(item, say), style=WIDE),
    ]


def _marks(item: Fields, say: Say) -> list[Html]:
    told = [say(name) for name in ("sensitive", "pinned") if item.get(name)]
    if item.get("valid_to"):
        told.append(f"{say('replaced')} {short_time(item['valid_to'])[:10]}")
    return [warning(" · ".join(told))] if told else []


def _event_cell(event: str, say: Say) -> Html:
    told = say(event) if event in _LABELS else event
    return cell(told, f"{NARROW};color:{_EVENT_COLOURS.get(event, 'inherit')}")


def _outcome_row(item: Fields, say: Say) -> list[Html]:
    before = item.get("previous_memory")
    replaced = [note(f"{say('instead_of')}: {truncate_text(before, 200)}")] if before else []
    said = tag("td", single_line(item["memory"], _LONGEST_ROW), *replaced, style=WIDE)
    return [_event_cell(item["event"], say), said]


def _step_row(step: Fields, say: Say) -> list[Html]:
    old, new = step["old_memory"], step["new_memory"]
    said = new if old in (None, new) else f"{old} → {new}" if new else old
    about = [note(step["reason"])] if step["reason"] else []
    about += [warning(say("taken_back"))] if step["undone"] else []
    return [
        _event_cell(step["event"], say),
        cell(short_time(step["created_at"]), f"{NARROW};{DIM}"),
        tag("td", single_line(said or "", _LONGEST_ROW), *about, style=WIDE),
        cell(step["actor_id"] or "", f"{NARROW};{DIM}"),
    ]


def _ends(relation: Fields) -> tuple[str, str]:
    return relation["source"], relation["destination"]


def _entities(entities: Sequence[Fields], say: Say) -> Html:
    rows = (
        [
            cell(tag("strong", entity["name"]), WIDE),
            cell(entity["type"]),
            cell(", ".join(n for n in entity.get("aliases", ()) if n != entity["name"]), WIDE),
        ]
        for entity in entities
    )
    return table(rows, [say("name"), say("type"), say("aliases")])


def _arrows(way: Sequence[Fields]) -> Html:
    """Relations one after the other, as arrows; one that holds no longer is struck out."""
    steps = []
    for relation in way:
        source, destination = (truncate_text(end, 200) for end in _ends(relation))
        arrow = f" — {relation['relationship']} → "
        line = [tag("strong", source), arrow, tag("strong", destination)]
        over = relation.get("ended") or relation.get("valid_to")
        steps.append(tag("s" if over else "span", *line))
    inner = [part for step in steps for part in (" · ", step)][1:]
    return tag("div", *inner, style=TEXT)
