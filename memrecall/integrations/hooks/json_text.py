"""Changes to JSON settings that leave every other byte as it is, comments included."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_SKIPPED = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")

Path = Sequence[str | int]  # keys of objects, and positions in arrays


_NAMES = ("an object", "an array")


class JsonTextError(ValueError):
    """A text that is not JSON, or that does not have the expected form."""


class JsonNode(NamedTuple):
    """A value and where it stands in the text."""

    start: int
    end: int
    value: Any
    children: tuple["Child", ...] = ()


class Child(NamedTuple):
    """A member of an object (which starts at its key) or an item of an array."""

    start: int
    node: JsonNode
    key: str | None = None

    @property
    def end(self) -> int:
        """The end of the value."""
        return self.node.end


def parse_text(text: str) -> JsonNode:
    """Return the value of JSON with comments, with the places of its parts."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    try:
        root = _parse_value(text, start)
    except RecursionError:
        raise JsonTextError("it is nested too deeply") from None
    if _skip(text, root.end) != len(text):
        raise _error(text, _skip(text, root.end))
    return root


def find(node: JsonNode, path: Path) -> JsonNode | None:
    """Return the value at a path, if there is one."""
    for key in path:
        is_position = isinstance(key, int)
        if not isinstance(node.value, list if is_position else dict):
            raise JsonTextError(f"what contains {key!r} is not {_NAMES[is_position]}")
        children = node.children[key:] if isinstance(key, int) else node.children
        child = next((child for child in children if is_position or child.key == key), None)
        if child is None:
            return None
        node = child.node
    return node


def add_item(text: str, path: Sequence[str], item: Any) -> tuple[str, list[str]]:
    """Append an item to the array at a path; return the text and the paths that were created."""
    if find(parse_text(text), path) is None:
        return insert_member(text, path, [item])
    return _append(text, path, None, item, list), []


def insert_member(text: str, path: Sequence[str], value: Any) -> tuple[str, list[str]]:
    """Set a member that does not exist; return the text and the paths that were created."""
    root = parse_text(text)
    missing = [n for n in range(1, len(path) + 1) if find(root, path[:n]) is None]
    first = missing[0]
    for key in reversed(path[first:]):
        value = {key: value}
    text = _append(text, path[: first - 1], path[first - 1], value, dict)
    return text, [join_path(path[:n]) for n in missing]


def join_path(path: Sequence[str]) -> str:
    """Return a path as one string, in which a key may contain a slash."""
    return "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)


def split_path(text: str) -> list[str]:
    """Return the path of a string of `join_path`."""
    return [key.replace("~1", "/").replace("~0", "~") for key in text.split("/")]


def remove(text: str, path: Path) -> str:
    """Remove the member or item at a path, which must exist."""
    parent = find(parse_text(text), path[:-1])
    last = path[-1]
    if parent is None:
        raise KeyError(last)
    keys = [child.key for child in parent.children]
    return _cut(text, parent, last if isinstance(last, int) else keys.index(last))


def _append(text: str, path: Path, key: str | None, value: Any, kind: type) -> str:
    node = find(parse_text(text), path)
    if node is None or not isinstance(node.value, kind):
        name = "/".join(map(str, path)) or "the file"
        raise JsonTextError(f"{name} is not {_NAMES[kind is list]}")
    addition = json.dumps(value, ensure_ascii=False)
    if key is not None:
        addition = f"{json.dumps(key)}: {addition}"
    if not node.children:
        at = node.start + 1
        return text[:at] + addition + text[at:]
    last = node.children[-1]
    # The new part stands where the last one does: on a line of its own, or on the same line.
    before = re.search(r"\r?\n[ \t]*$", text[: last.start])
    at = last.end
    return f"{text[:at]},{before.group() if before else ' '}{addition}{text[at:]}"


def _cut(text: str, container: JsonNode, position: int) -> str:
    """Remove a child and its comma; comments beside it stay."""
    child = container.children[position]
    if position > 0:
        previous = container.children[position - 1].end
        return text[:previous] + _without_comma(text[previous : child.start]) + text[child.end :]
    if len(container.children) == 1:
        return text[: child.start] + text[child.end :]
    following = container.children[1].start
    return text[: child.start] + _without_comma(text[child.end : following]) + text[following:]


def _without_comma(between: str) -> str:
    """Return what is worth keeping between two parts: nothing, or comments."""
    return "" if not between.strip().strip(",") else between.replace(",", "", 1)


def _skip(text: str, at: int) -> int:
    match = _SKIPPED.match(text, at)
    return match.end() if match else at


def _parse_value(text: str, at: int) -> JsonNode:
    if text[at : at + 1] == "{":
        return _parse_container(text, at, "}", is_object=True)
    if text[at : at + 1] == "[":
        return _parse_container(text, at, "]", is_object=False)
    match = _STRING.match(text, at) or _SCALAR.match(text, at)
    if match is None:
        raise _error(text, at)
    try:
        return JsonNode(at, match.end(), json.loads(match.group()))
    except ValueError:
        raise _error(text, at) from None


def _parse_container(text: str, start: int, closing: str, *, is_object: bool) -> JsonNode:
    children: list[Child] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        child = _parse_member(text, at) if is_object else Child(at, _parse_value(text, at))
        children.append(child)
        at = _skip(text, child.end)
        if text[at : at + 1] == ",":  # also after the last one, as some clients allow
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _error(text, at)
    values = [child.node.value for child in children]
    value = {child.key: child.node.value for child in children} if is_object else values
    return JsonNode(start, at + 1, value, tuple(children))


def _parse_member(text: str, at: int) -> Child:
    match = _STRING.match(text, at)
    colon = _skip(text, match.end()) if match else at
    if match is None or text[colon : colon + 1] != ":":
        raise _error(text, at)
    node = _parse_value(text, _skip(text, colon + 1))
    return Child(at, node, json.loads(match.group()))


def _error(text: str, at: int) -> JsonTextError:
    line = text.count("\n", 0, at) + 1
    return JsonTextError(f"it is not JSON: line {line} cannot be read")
