"""Import of messages and memories: valid ones in batches, invalid ones reported by line."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memrecall.errors import CallerError
from memrecall.importers.jsonl import SCOPE_FIELDS
from memrecall.importers.plan import BadLine, ImportPlan, make_plan
from memrecall.importers.records import Fault, ReadOptions, Record
from memrecall.importers.source import open_source
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import MessageFilter, ScopedMessage, WriteResult
from memrecall.types import NewMemory, NewMessage, Origin

IMPORT_BATCH = 1_000
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
        self.report = report = ImportReport()
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
                entry = _to_entry(name, item, plan.options)
                if batch and (_is_full(batch, strict) or batch[-1].kind != entry.kind):
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
            new = [entry for entry in part if not (entry.is_turn and await self._is_stored(entry))]
            report.repeated += len(part) - len(new)
            report.users.update(entry.scope.user_id for entry in part if entry.is_turn)
            await (self._store_all if strict else self._store)(new, report)
        report.refused = strict and bool(report.bad) and not report.usable

    async def _store(self, batch: list[_Entry], report: ImportReport) -> None:
        """Store a batch; if entries of it conflict, store the others without them."""
        while batch:
            try:
                stored = await self._write(batch)
            except CallerError as error:
                bad_entries = _bad_entries(batch, error)
                report.bad.extend(bad_entries.values())
                batch = [entry for at, entry in enumerate(batch) if at not in bad_entries]
                continue
            self._count(batch, stored, report)
            return

    async def _store_all(self, batch: list[_Entry], report: ImportReport) -> None:
        try:
            stored = await self._write(batch)
        except CallerError as error:
            report.bad.extend(_bad_entries(batch, error).values())
            return
        self._count(batch, stored, report)

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


def _is_full(batch: Sequence[_Entry], strict: bool) -> bool:
    return len(batch) == IMPORT_BATCH and not strict


def _to_entry(file: str, record: Record, options: ReadOptions) -> _Entry:
    user, agent = record.user_id or options.user or "", record.agent_id or options.agent
    scope = Scope(user, agent, record.session_id)
    return _Entry(file, record.line, scope, record.item, record.is_turn)


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
