"""The results of `Memory`: plain dicts and lists that a notebook displays as tables."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
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
    table,
    tag,
    warning,
)
from memrecall.text.language import language_of_most, read_phrases
from memrecall.text_length import single_line, truncate_text
from memrecall.types import cut_to_minute

Fields = Mapping[str, Any]

_LONGEST_ROW = 300
_LONGEST_NAME = 200
_EVENT_COLOURS = {"ADD": GREEN, "UPDATE": AMBER, "DELETE": RED}
_LABELS = read_phrases(Path(__file__).with_name("display.json"))


class SearchResults(dict[str, Any]):
    """The result of `search` and `get_all`: a dict with `results`."""

    def _repr_html_(self) -> str:
        items: Sequence[Fields] = self["results"]
        say = _say(item["memory"] for item in items)
        scored = any("score" in item for item in items)
        heads = [say(name) for name in ("score", "since", "type", "memory")[not scored :]]
        rows = (_item_row(item, say, scored=scored) for item in items)
        notes = [warning(self["message"])] if self.get("message") else []
        notes += [note(say("more"))] if self.get("next_cursor") else []
        tables = [table(rows, heads)] if items else []
        return str(box(note(_count(self, say)), *tables, *notes))


class MemoryResult(dict[str, Any]):
    """The result of `get` and `update`: a memory or message as a dict."""

    def _repr_html_(self) -> str:
        say = _say([self["memory"]])
        who = self.get("speaker") or self.get("role") or self["memory_type"]
        head = f" · {cut_to_minute(_since(self))} · {self['id']}"
        rows = (
            [cell(name, f"{NARROW};{DIM}"), cell(truncate_text(_plain(value), _LONGEST_ROW), WIDE)]
            for name, value in self.items()
            if value not in (None, "", [], {}) and name != "memory"
        )
        return str(
            box(
                tag("div", tag("strong", who), tag("span", head, style=DIM)),
                tag("div", clip(self["memory"]), style=TEXT),
                *_flags(self, say),
                folded(say("fields"), table(rows)),
            )
        )


class AddResult(dict[str, Any]):
    """The result of `add`: a dict of `results`, `messages`, `statuses`, `relations`, `problems`."""

    def _repr_html_(self) -> str:
        outcomes: Sequence[Fields] = self.get("results", ())
        relations: Sequence[Fields] = self.get("relations", ())
        say = _say(item["memory"] for item in outcomes)
        count = len(self.get("messages", ())) - [*self.get("statuses", ())].count("erased")
        parts = [f"{say('messages')}: {count:,}"]
        parts += [self["job_id"], self["state"]] if "job_id" in self else []
        blocks = [table(_outcome_row(item, say) for item in outcomes)] if outcomes else []
        blocks += [_path([relation]) for relation in relations]
        return str(box(note(" · ".join(parts)), *blocks, *map(warning, self.get("problems", ()))))


class HistoryResult(list[dict[str, Any]]):
    """The result of `history`: the changes of a memory, oldest first."""

    def _repr_html_(self) -> str:
        say = _say(change["new_memory"] or change["old_memory"] or "" for change in self)
        heads = [say(name) for name in ("event", "when", "memory", "by")]
        return str(box(table((_change_row(change, say) for change in self), heads)))


class GraphResult(dict[str, Any]):
    """The result of `graph` and `extract`: a dict with `entities`, `relations` or `paths`."""

    def _repr_html_(self) -> str:
        entities: Sequence[Fields] = self.get("entities", ())
        paths: Sequence[Sequence[Fields]] = self.get("paths", ())
        paths = [*paths, *([relation] for relation in self.get("relations", ()))]
        names = [entity["name"] for entity in entities]
        names += [name for path in paths for relation in path for name in _ends(relation)]
        say = _say(names)
        blocks = [_entity_table(entities, say)] if entities else []
        blocks += map(_path, paths)
        nothing = note(say("no_path" if "paths" in self else "nothing"))
        return str(box(*(blocks or [nothing]), *map(warning, self.get("problems", ()))))


def _say(texts: Iterable[str]) -> Say:
    return labels(_LABELS, language_of_most(texts))


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _count(page: Fields, say: Say) -> str:
    count = len(page["results"])
    total = page.get("total_found", count)
    if not count and not total:
        return say("nothing")
    text = f"{count:,}" if count == total else f"{count:,} {say('of')} {total:,}"
    return f"{text} {say('results')}"


def _since(item: Fields) -> str:
    return str(item.get("valid_from") or item["created_at"])


def _item_row(item: Fields, say: Say, *, scored: bool) -> list[Html]:
    kind = item.get("role") or item["memory_type"]
    text = single_line(item["memory"], _LONGEST_ROW)
    sources = [note(_quote(item["source"]))] if item.get("source") else []
    return [
        *([score_cell(item.get("score"))] if scored else []),
        cell(cut_to_minute(_since(item)), f"{NARROW};{DIM}"),
        cell(item.get("speaker") or kind),
        tag("td", text, *_flags(item, say), *sources, style=WIDE),
    ]


def _flags(item: Fields, say: Say) -> list[Html]:
    flags = [say(name) for name in ("sensitive", "pinned") if item.get(name)]
    if item.get("valid_to"):
        flags.append(f"{say('replaced')} {item['valid_to'][:10]}")
    for conflict in item.get("conflicts_with", ()):
        text = single_line(conflict.get("memory") or "", _LONGEST_NAME)
        claim = f"{say('claim')} ({item.get('origin', '')}), {say('conflicts')}"
        flags.append(f"{claim} {conflict['id']}: {text}")
    return [warning(" · ".join(flags))] if flags else []


def _event_cell(event: str, say: Say) -> Html:
    text = say(event) if event in _LABELS else event
    return cell(text, f"{NARROW};color:{_EVENT_COLOURS.get(event, 'inherit')}")


def _outcome_row(item: Fields, say: Say) -> list[Html]:
    before = item.get("previous_memory")
    replaced = (
        [note(f"{say('instead_of')}: {truncate_text(before, _LONGEST_NAME)}")] if before else []
    )
    text = single_line(item["memory"], _LONGEST_ROW)
    return [_event_cell(item["event"], say), tag("td", text, *replaced, style=WIDE)]


def _change_row(change: Fields, say: Say) -> list[Html]:
    old, new = change["old_memory"], change["new_memory"]
    text = new if old in (None, new) else f"{old} → {new}" if new else old
    notes = [note(_quote(message)) for message in change.get("said", ())]
    notes += [note(change["reason"])] if change["reason"] else []
    notes += [warning(say("undone"))] if change["undone"] else []
    return [
        _event_cell(change["event"], say),
        cell(cut_to_minute(change["created_at"]), f"{NARROW};{DIM}"),
        tag("td", single_line(text or "", _LONGEST_ROW), *notes, style=WIDE),
        cell(change["actor_id"] or "", f"{NARROW};{DIM}"),
    ]


def _quote(message: Fields) -> str:
    """Return who said what."""
    text = single_line(message["text"], _LONGEST_NAME)
    return f"{message['speaker'] or message['role']}: {text}"


def _ends(relation: Fields) -> tuple[str, str]:
    return relation["source"], relation["destination"]


def _entity_table(entities: Sequence[Fields], say: Say) -> Html:
    rows = (
        [
            cell(tag("strong", entity["name"]), WIDE),
            cell(entity["type"]),
            cell(", ".join(n for n in entity.get("aliases", ()) if n != entity["name"]), WIDE),
        ]
        for entity in entities
    )
    return table(rows, [say("name"), say("type"), say("aliases")])


def _path(relations: Sequence[Fields]) -> Html:
    """Return relations as a row of arrows, with ended ones struck out."""
    steps = []
    for relation in relations:
        source, destination = (truncate_text(end, _LONGEST_NAME) for end in _ends(relation))
        arrow = f" — {relation['relationship']} → "
        line = [tag("strong", source), arrow, tag("strong", destination)]
        has_ended = relation.get("ended") or relation.get("valid_to")
        steps.append(tag("s" if has_ended else "span", *line))
    inner = [part for step in steps for part in (" · ", step)][1:]
    return tag("div", *inner, style=TEXT)
