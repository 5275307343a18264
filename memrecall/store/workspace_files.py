"""Reading workspaces: searching their text files, and showing them whole, both within bounds."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from memrecall.store.workspaces import Found, Workspaces, list_tasks, walk
from memrecall.text.normalize import normalize

_LOOKED_AT = 8_192  # bytes that tell whether a file is text
_SNIPPET = 240  # characters


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one reading of the workspaces may cost."""

    file_bytes: int = 1024 * 1024  # larger files are not searched
    total_bytes: int = 64 * 1024 * 1024
    files: int = 20_000
    hits: int = 50
    shown_bytes: int = 64 * 1024  # of each file
    shown_total: int = 2 * 1024 * 1024
    shown_files: int = 2_000


@dataclass(frozen=True, slots=True)
class FileHit:
    """A file that a query was found in, with the line that says most of it."""

    key: str  # task_id/relative/path
    line: int
    snippet: str
    words: int  # of the query in that line
    whole: bool  # the query as it stands is in that line


@dataclass(slots=True)
class Reading:
    """What a reading found, and what it left out."""

    hits: list[FileHit] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    seen: int = 0

    def skip(self, why: str) -> None:
        """Count a file that was not read."""
        self.left_out[why] = self.left_out.get(why, 0) + 1


def search_files(workspaces: Workspaces, query: str, limits: ReadLimits) -> Reading:
    """The files that have every word of a query, whatever the case; the best first."""
    words = fold(query).split()
    reading = Reading()
    with workspaces.hold() as root:
        for found in _files(root, reading, limits.files):
            text = _text_of(found, reading, limits)
            hit = None if text is None else _match(found, text, words)
            if hit is not None:
                reading.hits.append(hit)
    reading.hits.sort(key=lambda hit: (not hit.whole, -hit.words, hit.key))
    for _ in reading.hits[limits.hits :]:
        reading.skip("more hits")
    del reading.hits[limits.hits :]
    return reading


def show_files(workspaces: Workspaces, limits: ReadLimits) -> Reading:
    """Every workspace with its files: their size, and their text as far as there is room."""
    reading = Reading()
    with workspaces.hold() as root:
        reading.files = {task_id: {} for task_id in list_tasks(root)}
        for found in _files(root, reading, limits.shown_files):
            shown: dict[str, Any] = {"size": found.status.st_size}
            room = min(limits.shown_bytes, limits.shown_total - reading.bytes)
            data = found.read(room + 1) if room > 0 else None
            text = None if data is None else _decode(data[: max(room, 0)], cut=len(data) > room)
            if text is not None:
                reading.bytes += len(text.encode())
                shown["text"] = text
            if text is None or len(data or b"") > room:
                why = "binary files" if data is not None and text is None else "texts cut short"
                shown["left_out"] = why
                reading.skip(why)
            reading.files[found.task_id][found.path] = shown
    return reading


def fold(text: str) -> str:
    """Text as it is compared: one form of each character, no case."""
    return normalize(text).casefold()


def _files(root: int, reading: Reading, most: int) -> Iterator[Found]:
    """The ordinary files of all workspaces, as many as may be looked at."""
    for task_id in list_tasks(root):
        for found in walk(root, task_id):
            if found.is_folder:
                continue
            if not found.is_file or not found.is_nameable:
                reading.skip("links and special files")
            elif reading.seen >= most:
                reading.skip("more files")
            else:
                reading.seen += 1
                yield found


def _text_of(found: Found, reading: Reading, limits: ReadLimits) -> str | None:
    size = found.status.st_size
    if size > limits.file_bytes or reading.bytes + size > limits.total_bytes:
        reading.skip("large files")
        return None
    data = found.read(limits.file_bytes)
    text = None if data is None else _decode(data, cut=False)
    if data is None or text is None:
        reading.skip("binary files" if data is not None else "unreadable files")
        return None
    reading.bytes += len(data)
    return text


def _decode(data: bytes, *, cut: bool) -> str | None:
    """The bytes as text; None if they are none. What was cut may end inside a character."""
    if b"\0" in data[:_LOOKED_AT]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if cut and error.start >= len(data) - 3:
            return data[: error.start].decode()
        return None


def _match(found: Found, text: str, words: list[str]) -> FileHit | None:
    folded = fold(text)
    if not words or not all(word in folded for word in words):
        return None
    phrase = " ".join(words)
    best: tuple[bool, int, int, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        said = fold(line)
        score = (phrase in said, sum(word in said for word in words), -number, line)
        if best is None or score[:3] > best[:3]:
            best = score
    if best is None:
        return None
    key = f"{found.task_id}/{found.path}"
    return FileHit(key, -best[2], _cut(best[3], words), best[1], best[0])


def _cut(line: str, words: list[str]) -> str:
    """The part of a long line where the query begins."""
    line = line.strip()
    if len(line) <= _SNIPPET:
        return line
    places = [fold(line).find(word) for word in words]
    start = max(0, min((place for place in places if place >= 0), default=0) - 40)
    return ("…" if start else "") + line[start : start + _SNIPPET] + "…"
