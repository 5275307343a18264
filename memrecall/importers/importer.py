"""Import of messages and memories: valid ones in batches, invalid ones reported by line."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memrecall.errors import CallerError, InvalidArgument, MemrecallError
from memrecall.importers.jsonl import SCOPE_FIELDS, read_lines
from memrecall.importers.plan import BadLine, ImportPlan, make_plan
from memrecall.importers.records import Fault, ReadOptions, Record
from memrecall.importers.source import Source, SourceFile, open_source
from memrecall.json_objects import parse_json_line
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.store import MessageFilter, Removal, ScopedMessage, WriteResult, read_filter
from memrecall.store.transfer import (
    ID_PREFIX,
    id_of_label,
    label_import,
    new_import_id,
    time_of_import,
)
from memrecall.types import NewMemory, NewMessage, Origin

IMPORT_BATCH = 1_000
IMPORT_KEY = "import"  # of a message's metadata: the id, the format and the file of its import
_FORMERLY_ZONED = ("whatsapp-", "imessage-")  # ids that depended on the zone in version 0.2
_PAGE = 200  # messages, the most that a page has


@dataclass(slots=True)
class ImportReport:
    """The counts and invalid lines of one import."""

    lines: int = 0
    stored: int = 0
    repeated: int = 0
    users: set[str] = field(default_factory=set)
    bad: list[BadLine] = field(default_factory=list)
    redacted: Counter[str] = field(default_factory=Counter)  # lines by what is not stored of them
    refused: bool = False  # in strict mode, a line was invalid and nothing was imported
    import_id: str = ""  # which `undo_import` takes

    @property
    def usable(self) -> int:
        """The number of lines that are stored now, by this import or an earlier one."""
        return self.stored + self.repeated


@dataclass(frozen=True, slots=True)
class _Entry:
    file: str
    line: int
    scope: Scope
    item: NewMessage | NewMemory
    is_turn: bool = False
    is_local: bool = False

    @property
    def kind(self) -> Scope | None:
        """What a batch has in common: messages are of any scope, memories of one."""
        return self.scope if isinstance(self.item, NewMemory) else None


class Importer:
    """An importer of files into a library."""

    def __init__(self, library: Library, options: ReadOptions | None = None) -> None:
        self._library = library
        self._options = options or ReadOptions()
        self._stored_turns: tuple[Scope, set[object]] | None = None  # of one session
        self._same_zone: set[Scope] = set()  # chats that are stored in the zone of this import
        self.report = ImportReport()  # of the last run, also if it stopped half way

    async def run(
        self, source: Path | ImportPlan, *, strict: bool = False, progress: Progress = False
    ) -> ImportReport:
        """Import a file, a folder or an archive; with `strict` all lines or none.

        In a distributed database, `strict` stores all lines of a user or none.

        `progress` is called with the number of entries that were handled; without it, a notebook
        shows a progress bar.
        """
        if isinstance(source, ImportPlan):
            return await self._run_plan(source, strict, progress)
        with open_source(source) as files:
            return await self._run_plan(make_plan(files, self._options), strict, progress)

    async def _run_plan(self, plan: ImportPlan, strict: bool, progress: Progress) -> ImportReport:
        plan.require_complete()
        with progress_bar(progress, "importing", plan.survey.entries, unit="messages") as advance:
            return await self._run(plan, strict, advance)

    async def _run(self, plan: ImportPlan, strict: bool, advance: Advance) -> ImportReport:
        self.report = report = ImportReport(import_id=new_import_id())
        label = f"{report.import_id} {'+'.join(plan.survey.formats)} {plan.source.name}"
        if strict and plan.survey.bad:
            report.lines, report.bad = plan.survey.entries, plan.survey.bad
            report.refused = True
            return report
        batch: list[_Entry] = []
        for name, item in plan.items():
            if isinstance(item, Fault):
                report.lines += 1
                report.bad.append(BadLine(item.line, item.reason, name))
                advance(1)
            elif isinstance(item, Record):
                report.lines += 1
                entry = _to_entry(name, item, plan.options, label)
                is_full = len(batch) == IMPORT_BATCH and not strict
                if batch and (is_full or batch[-1].kind != entry.kind):
                    await self._store_each(batch, report)
                    advance(len(batch))
                    batch = []
                batch.append(entry)
        await self._store_each(batch, report, strict=strict)
        advance(len(batch))
        if report.repeated:
            # An earlier import may have been interrupted before the vectors were stored.
            self._library.vectors.expect(dict.fromkeys(report.users, 1))
        return report

    async def _store_each(
        self, batch: list[_Entry], report: ImportReport, *, strict: bool = False
    ) -> None:
        """Store a batch at once; in a distributed database user by user.

        With `strict`, all lines of a transaction are stored or none.
        """
        users = {entry.scope.user_id for entry in batch}
        for user in sorted(users) if self._library.store.database.is_distributed else [None]:
            part = [entry for entry in batch if user in (None, entry.scope.user_id)]
            await self._refuse_other_zone(part)
            new = [entry for entry in part if not (entry.is_turn and await self._is_stored(entry))]
            report.repeated += len(part) - len(new)
            report.users.update(entry.scope.user_id for entry in part if entry.is_turn)
            await self._store(new, report, strict=strict)
        report.refused = strict and bool(report.bad) and not report.usable

    async def _store(self, batch: list[_Entry], report: ImportReport, *, strict: bool) -> None:
        """Store a batch; if entries conflict, the others without them, or with `strict` none."""
        while batch:
            try:
                stored = await self._write(batch)
            except CallerError as error:
                bad_entries = _bad_entries(batch, error)
                report.bad.extend(bad_entries.values())
                others = [entry for at, entry in enumerate(batch) if at not in bad_entries]
                batch = [] if strict else others
                continue
            self._count(batch, stored, report)
            return

    async def _refuse_other_zone(self, batch: Sequence[_Entry]) -> None:
        """Raise InvalidArgument if a chat is stored with times, or ids, of another zone."""
        chats: dict[Scope, dict[str, NewMessage]] = {}
        for entry in batch:
            if entry.is_local and isinstance(entry.item, NewMessage):
                chats.setdefault(entry.scope, {})[entry.item.message_id or ""] = entry.item
        for scope, items in chats.items():
            timeline = self._library.store.timeline(Scope(scope.user_id))
            stored = await timeline.get_many(list(items))
            moved = [old for old in stored if items[old.message_id].ts not in (None, old.ts)]
            session, is_known = scope.session_id, stored or scope in self._same_zone
            if not is_known and min(items).startswith(_FORMERLY_ZONED):
                page = await timeline.page(MessageFilter(session_id=session), order="asc")
                moved = [old for old in page.items if IMPORT_KEY not in old.metadata]
            for old in sorted(moved, key=lambda old: IMPORT_KEY in old.metadata):
                label = old.metadata.get(IMPORT_KEY)
                way = f"import --undo {label.split()[0]}" if label else f"sessions erase {session}"
                raise InvalidArgument(
                    "the chat is already stored, but with times or ids of another --zone",
                    hint=f"Run `memrecall {way} --user {old.user_id}`, then import the file again",
                )
            self._same_zone.add(scope)

    async def _is_stored(self, entry: _Entry) -> bool:
        """Return True if a session has these words already, perhaps of another time and id.

        That is what hooks store: they know other ids of turns, and not when something was said.
        """
        if self._stored_turns is None or self._stored_turns[0] != entry.scope:
            self._stored_turns = entry.scope, await self._find_turns(entry.scope)
        message, stored = entry.item, self._stored_turns[1]
        words = self._library.store.database.privacy.redact(message.content)
        return isinstance(message, NewMessage) and (
            message.message_id in stored or (message.role, words) in stored
        )

    async def _find_turns(self, scope: Scope) -> set[object]:
        """Return the ids and the words in a session."""
        timeline = self._library.store.timeline(Scope(scope.user_id))
        found: set[object] = set()
        session, cursor, is_done = MessageFilter(session_id=scope.session_id), None, False
        while not is_done:
            page = await timeline.page(session, page_size=_PAGE, cursor=cursor)
            for message in page.items:
                found |= {message.message_id, (message.role, message.content)}
            cursor, is_done = page.next_cursor, page.next_cursor is None
        return found

    async def _write(self, batch: Sequence[_Entry]) -> WriteResult:
        """Store entries of one kind, all or nothing."""
        messages = [
            ScopedMessage(entry.scope, entry.item)
            for entry in batch
            if isinstance(entry.item, NewMessage)
        ]
        if messages or not batch:
            return await self._library.add_entries(messages)
        memories = [entry.item for entry in batch if isinstance(entry.item, NewMemory)]
        return await self._library.add_memories(
            batch[0].scope, memories, origin=Origin.IMPORT, actor="import"
        )

    def _count(self, batch: Sequence[_Entry], result: WriteResult, report: ImportReport) -> None:
        report.stored += result.stored
        report.repeated += len(batch) - result.stored
        report.redacted.update(kind for kinds in result.redacted for kind in kinds)
        report.users.update(entry.scope.user_id for entry in batch)


async def list_imports(library: Library, user_id: str) -> list[dict[str, Any]]:
    """Return the imports of which rows of a user are stored, the last first.

    `memories` are those that an export had; chats have none.
    """
    scope = Scope.of_owner(user_id)
    counts = await library.store.timeline(scope).count_metadata(IMPORT_KEY)
    imports = [(label, at, number, 0) for label, at, number in counts]
    for label, rows in (await library.store.labelled(scope).count()).items():
        at = time_of_import(id_of_label(label))
        imports.append((label, at, rows["messages"], rows["memories"]))
    names = ("id", "format", "file", "time", "messages", "memories")
    return [
        dict(zip(names, (*label.split(" ", 2), *values), strict=False))
        for label, *values in sorted(imports, key=lambda item: item[1], reverse=True)
        if label.startswith(ID_PREFIX)
    ]


async def undo_import(library: Library, user_id: str, import_id: str) -> dict[str, Any]:
    """Erase what an import stored, and the memories that were derived from its messages alone.

    They can be imported again. After an interruption, call it again for the rest.
    """
    scope = Scope.of_owner(user_id, permissions=frozenset({Permission.SENSITIVE}))
    timeline = library.store.timeline(scope)
    labels = [label for label, *_ in await timeline.count_metadata(IMPORT_KEY)]
    labels = [label for label in labels if id_of_label(label) == import_id]
    ids = await timeline.keys(read_filter({IMPORT_KEY: labels}), hidden=True)
    removal = Removal()
    for start in range(0, len(ids), IMPORT_BATCH):
        removal += await library.take_back(scope, ids[start : start + IMPORT_BATCH], "import")
    for label in await library.store.labelled(scope).count():
        if id_of_label(label) == import_id:
            removal += await library.take_back_export(scope, label, IMPORT_BATCH, "import")
    counts = {"messages": len(removal.messages), "memories": len(removal.memories)}
    return {"id": import_id, **counts}


def _to_entry(file: str, record: Record, options: ReadOptions, label: str) -> _Entry:
    user, agent = record.user_id or options.user or "", record.agent_id or options.agent
    scope, item = Scope(user, agent, record.session_id), record.item
    if isinstance(item, NewMessage):
        item = item.model_copy(update={"metadata": {**item.metadata, IMPORT_KEY: label}})
    return _Entry(file, record.line, scope, item, record.is_turn, record.is_local)


def _bad_entries(batch: Sequence[_Entry], error: CallerError) -> dict[int, BadLine]:
    """Return the entries that an error is about by position; all of them if it names none."""
    faults: dict[int, str] = error.details.get("faults", {})
    if not faults:
        matches = [at for at, entry in enumerate(batch) if _is_about(error, entry)]
        faults = dict.fromkeys(matches or range(len(batch)), str(error))
    return {at: BadLine(batch[at].line, reason, batch[at].file) for at, reason in faults.items()}


def _is_about(error: CallerError, entry: _Entry) -> bool:
    item, details = entry.item, error.details
    key = item.message_id if isinstance(item, NewMessage) else item.memory_key
    return details.get("message_id", details.get("memory_key")) in (None, key) and all(
        details.get(name) in (None, getattr(entry.scope, name) or DEFAULT_NAME)
        for name in SCOPE_FIELDS
    )


_EXPORT_FIELDS = {"format", "table", "row"}


@dataclass(slots=True)
class ExportReport:
    """The counts of one import."""

    lines: int = 0
    users: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)  # of messages and memories
    skipped: dict[str, list[str]] = field(default_factory=dict)  # keys by table, of all users
    joined: list[str] = field(default_factory=list)  # sessions that were there already
    redacted: Counter[str] = field(default_factory=Counter)  # rows by what is not stored of them
    import_id: str = ""  # which `undo_import` takes


def is_export(source: Source) -> bool:
    """Return True if the first line of a single file is a record of an export."""
    if not source.is_single:
        return False
    for _, line in read_lines(source.files[0]):
        try:
            record = None if isinstance(line, Fault) else json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and record.keys() >= _EXPORT_FIELDS
    return False


async def import_export(
    library: Library, file: SourceFile, user_id: str | None = None
) -> ExportReport:
    """Import an export, each user's data completely or not at all, optionally as `user_id`.

    The whole file is read before anything is stored. Existing rows with the same keys are kept.
    """
    report, records = _read_records(file)
    report.import_id = new_import_id()
    label = label_import(report.import_id, file.name)
    if user_id is not None and len(records) > 1:
        raise InvalidArgument(
            f"{file.name} has {len(records)} users, who cannot be imported as one: {user_id!r}",
            hint="Leave out the user",
        )
    for owner, rows in records.items():
        try:
            counts = await library.import_user(user_id or owner, rows, label=label)
        except MemrecallError as error:
            error.details["imported_users"] = len(report.users)
            raise
        report.users += (user_id or owner,)
        report.redacted.update(counts.redacted)
        report.statuses.update(counts.statuses)
        report.joined.extend(counts.joined)
        for table, keys in counts.skipped.items():
            report.skipped.setdefault(table, []).extend(keys)
        for table, count in counts.items():
            report.rows[table] = report.rows.get(table, 0) + count
    return report


def preview_export(file: SourceFile) -> ExportReport:
    """Return the counts of an export without storing anything."""
    report, records = _read_records(file)
    report.users = tuple(records)
    report.rows = Counter(str(row.get("table")) for rows in records.values() for row in rows)
    return report


def _read_records(file: SourceFile) -> tuple[ExportReport, dict[str, list[dict[str, Any]]]]:
    report = ExportReport()
    records: dict[str, list[dict[str, Any]]] = {}
    for number, line in read_lines(file):
        report.lines += 1
        if isinstance(line, Fault):
            raise InvalidArgument(f"line {number}: {line.reason}")
        record = parse_record(number, line)
        records.setdefault(str(record["row"].get("user_id")), []).append(record)
    return report, records


def parse_records(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """Return the lines of an export; raise InvalidArgument if one is invalid."""
    return [parse_record(number, line) for number, line in enumerate(lines, 1)]


def parse_record(number: int, line: str | bytes) -> dict[str, Any]:
    """Return one line of an export; raise InvalidArgument with its number if it is invalid."""
    try:
        record = parse_json_line(line.encode() if isinstance(line, str) else line)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"line {number}: {error.message}", hint="Use a file that `memrecall export` wrote"
        ) from None
    if not isinstance(record.get("row"), dict):
        raise InvalidArgument(
            f"line {number}: not a record of an export",
            hint="Import messages from a separate file",
        )
    return record
