"""The plan of an import: which files are read how, and a survey of what is in them.

Everything is read once before anything is stored. So a missing option or a wrong file is reported
before a database is created, a preview is exact, and progress knows how many messages there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers import (
    assistants,
    coding_assistants,
    jsonl,
    mbox,
    model_messages,
    plain_text,
    tables,
    team_chats,
    wechat,
)
from memrecall.importers.records import Fault, FileFormat, Note, ReadOptions, Record, Skipped
from memrecall.importers.source import Source, SourceFile
from memrecall.plugins import find_plugin, plugin_names
from memrecall.text_length import single_line
from memrecall.types import NewMemory, NewMessage, Role, format_minute

_SHOWN_NAMES = 12
_LISTED_NAMES = 1_000
_MAX_SPEAKERS = 100_000
_SAMPLES, _SAMPLE_LENGTH = 3, 70
_SAMPLE_FIELDS = {"ts", "role", "speaker", "content"}


@dataclass(frozen=True, slots=True)
class BadLine:
    """An entry that was not imported, and the reason. `file` is empty for a single file."""

    line: int
    reason: str
    file: str = ""


@dataclass(slots=True)
class Survey:
    """What the files of an import contain."""

    formats: Counter[str] = field(default_factory=Counter)  # files by format
    conversations: set[tuple[str, str | None]] = field(default_factory=set)
    messages: int = 0
    memories: int = 0
    speakers: Counter[str] = field(default_factory=Counter)
    roles: Counter[Role] = field(default_factory=Counter)
    first: datetime | None = None
    last: datetime | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    bad: list[BadLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    projects: dict[str, Counter[str]] = field(default_factory=dict)  # messages by session
    samples: list[NewMessage] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """The number of entries: records and invalid ones."""
        return self.messages + self.memories + len(self.bad)

    def describe(self) -> dict[str, Any]:
        """Return the preview as plain values."""
        return {
            "formats": dict(self.formats),
            "conversations": len(self.conversations),
            "messages": self.messages,
            "memories": self.memories,
            "speakers": dict(self._named_speakers().most_common()),
            "samples": [sample.model_dump(include=_SAMPLE_FIELDS) for sample in self.samples],
            "first": self.first,
            "last": self.last,
            "skipped": dict(self.skipped.most_common()),
            "bad": self.bad,
            "notes": self.notes,
            "projects": {
                name: {"sessions": len(each), "messages": each.total()}
                for name, each in self._projects()
            },
        }

    def _projects(self) -> list[tuple[str, Counter[str]]]:
        """Return the projects, those with most sessions first."""
        return sorted(self.projects.items(), key=lambda item: (-len(item[1]), item[0]))

    def lines(self) -> list[str]:
        """Return the preview for people to read."""
        formats = ", ".join(
            f"{name} ({count} files)" if count > 1 else name for name, count in self.formats.items()
        )
        lines = [f"format         {formats}"]
        if self.messages or not self.memories:
            lines.append(f"conversations  {len(self.conversations):,}")
            lines.append(f"messages       {self.messages:,}")
        if self.memories:
            lines.append(f"memories       {self.memories:,}")
        if speakers := self._named_speakers():
            named = [f"{name} ({count:,})" for name, count in speakers.most_common()]
            lines.append(f"speakers       {', '.join(named)}")
        if self.first and self.last:
            times = f"{format_minute(self.first)} to {format_minute(self.last)} UTC"
            lines.append(f"time           {times}")
        for sample in self.samples:
            text = single_line(sample.content, _SAMPLE_LENGTH)
            lines.append(f"sample         {sample.speaker or sample.role.value}: {text}")
        return lines + self.remarks()

    def _named_speakers(self) -> Counter[str]:
        """Return the speakers, or the roles if the files name nobody."""
        roles = Counter({role.value: count for role, count in self.roles.items()})
        return self.speakers or roles

    def remarks(self) -> list[str]:
        """Return the sessions of each project, what was skipped and what was assumed."""
        skipped = ", ".join(f"{reason} ({count:,})" for reason, count in self.skipped.most_common())
        projects = [
            f"project        {name} (sessions: {len(each):,}, messages: {each.total():,})"
            for name, each in self._projects()
        ]
        notes = [f"assumed        {note}" for note in self.notes]
        return projects + ([f"skipped        {skipped}"] if skipped else []) + notes

    def count(self, user: str, record: Record) -> None:
        """Add a record."""
        if isinstance(record.item, NewMemory):
            self.memories += 1
            return
        message = record.item
        self.messages += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(message)
        self.roles[message.role] += 1
        if message.speaker and len(self.speakers) < _MAX_SPEAKERS:
            self.speakers[message.speaker] += 1
        self.conversations.add((user, record.session_id))
        if message.project:
            self.projects.setdefault(message.project, Counter())[record.session_id or ""] += 1
        if message.ts is not None:
            self.first = min(self.first or message.ts, message.ts)
            self.last = max(self.last or message.ts, message.ts)


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The files to read, the options, and the survey of them."""

    source: Source
    files: list[tuple[SourceFile, FileFormat]]
    options: ReadOptions
    survey: Survey
    missing: list[InvalidArgument] = field(default_factory=list)  # what the caller has to say

    def require_complete(self) -> None:
        """Raise InvalidArgument if the user, or the speaker who is the user, is not known."""
        for error in self.missing:
            raise error

    def items(self) -> Iterator[tuple[str, Record | Skipped | Fault | Note]]:
        """Yield what is in the files, each with the name of its file (empty for a single one)."""
        for file, file_format in self.files:
            name = "" if self.source.is_single else file.name
            for item in read_file(file, file_format, self.options):
                yield name, item


def make_plan(
    source: Source,
    options: ReadOptions | None = None,
    format_name: str | None = None,
    files: list[tuple[SourceFile, FileFormat]] | None = None,
) -> ImportPlan:
    """Read a source and return the plan, with what the caller still has to say.

    With `files`, their formats are known; there may be none.
    """
    options = options or ReadOptions()
    files = match_files(source, format_name) if files is None else files
    plan = ImportPlan(source, files, options, Survey())
    survey, lacks_user = plan.survey, False
    for _, file_format in plan.files:
        survey.formats[file_format.name] += 1
    for kind, count in source.left_out.items():
        survey.skipped[kind] += count
    for name, item in plan.items():
        if isinstance(item, Record):
            survey.count(item.user_id or options.user or "", item)
            lacks_user = lacks_user or not (item.user_id or options.user)
        elif isinstance(item, Fault):
            survey.bad.append(BadLine(item.line, item.reason, name))
        elif isinstance(item, Skipped):
            survey.skipped[item.reason] += 1
        elif item.text not in survey.notes:
            survey.notes.append(item.text)
    if any(file_format.between_people for _, file_format in plan.files):
        plan.missing.extend(_find_missing_me(survey, options.me))
    if lacks_user:
        plan.missing.append(
            InvalidArgument(
                f"{source.name} does not say which user its messages belong to",
                hint="Pass --user with the id to store them under",
            )
        )
    return plan


def read_file(
    file: SourceFile, file_format: FileFormat, options: ReadOptions
) -> Iterator[Record | Skipped | Fault | Note]:
    """Yield the items of a file, with the role `user` for the speaker that `me` names."""
    try:
        for item in file_format.read(file, options):
            if isinstance(item, Record) and file_format.between_people and options.me:
                yield _with_role(item, options.me)
            else:
                yield item
    except InvalidArgument as error:
        raise InvalidArgument(f"{file.name}: {error.message}", hint=error.hint) from None
    if file.assumed_encoding:
        yield Note(f"{file.name} is text in {file.assumed_encoding}")


def _with_role(record: Record, me: str) -> Record:
    message = record.item
    if not isinstance(message, NewMessage) or message.role not in (Role.USER, Role.OTHER):
        return record
    names = (message.speaker or "", *record.names)
    is_me = me.casefold() in (name.casefold() for name in names)
    role = Role.USER if is_me else Role.OTHER
    return replace(record, item=message.model_copy(update={"role": role}))


def _find_missing_me(survey: Survey, me: str | None) -> Iterator[InvalidArgument]:
    """Yield an error about a chat between people none of whom is known to be the user."""
    if survey.roles[Role.USER] or not survey.roles[Role.OTHER]:
        return
    names = [name for name, _ in survey.speakers.most_common()]
    shown = ", ".join(names[:_SHOWN_NAMES])
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    if me is None:
        message = f"which speaker is the user? The speakers are {shown}{more}"
        hint = f'Pass one of them with --me, for example --me "{names[0] if names else ""}"'
    else:
        near = get_close_matches(me, names, 1, 0.5)
        message = f"no speaker is called {me!r}"
        hint = f'Did you mean --me "{near[0]}"?' if near else f"The speakers are {shown}{more}"
    yield InvalidArgument(message, hint=hint, speakers=names[:_LISTED_NAMES])


# The first format that matches a file reads it: those with clearer marks come first.
FORMATS: tuple[FileFormat, ...] = (
    *(assistants.CHATGPT, assistants.CLAUDE, assistants.GEMINI),
    *(coding_assistants.CLAUDE_CODE, coding_assistants.CODEX, coding_assistants.GEMINI_CLI),
    *(team_chats.TELEGRAM, team_chats.DISCORD, team_chats.SLACK, wechat.FORMAT),
    *(model_messages.MEM0, model_messages.OPENAI, plain_text.WHATSAPP),
    *(mbox.FORMAT, tables.CSV, plain_text.MARKDOWN, plain_text.COPY, jsonl.FORMAT),
)


def format_names() -> list[str]:
    """Return the names of all formats."""
    return [*plugin_names("importers"), *(known.name for known in FORMATS)]


def get_format(name: str) -> FileFormat:
    """Return the format of that name; InvalidArgument lists the names."""
    for known in FORMATS:
        if known.name == name:
            return known
    plugin = find_plugin("importers", name)
    if isinstance(plugin, FileFormat):
        return plugin
    names = format_names()
    near = get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(names)}"
    raise InvalidArgument(f"there is no import format {name!r}", hint=hint)


def match_files(source: Source, name: str | None = None) -> list[tuple[SourceFile, FileFormat]]:
    """Return the files to read with their formats; those of a folder that match none are left out.

    With a `name`, that format reads every file of it, and a single file whatever it looks like.
    """
    forced = get_format(name) if name else None
    formats = (forced,) if forced else (*_plugin_formats(), *FORMATS)
    if source.is_single:
        (file,) = source.files
        found = forced or _match(file, formats)
        is_json = file.sample.lstrip("\ufeff \t\r\n").startswith("{")
        if found is None and not (is_json and jsonl.has_fields(file)):
            raise InvalidArgument(
                f"{file.name}: format not recognised", hint=f"{_known()}; name it with --format"
            )
        return [(file, found or jsonl.FORMAT)]
    pairs = [(file, found) for file in source.files if (found := _match(file, formats))]
    if others := len(source.files) - len(pairs):
        source.left_out["other files"] += others
    if not pairs:
        wanted = f"file of the format {name}" if name else "file of a known format"
        raise InvalidArgument(
            f"{source.name} has no {wanted} among its {len(source.files)} files",
            hint=f"{_known()}; pass one file with --format",
        )
    return pairs


def _known() -> str:
    return f"Known are {', '.join(format_names())}"


def _plugin_formats() -> list[FileFormat]:
    plugins = [find_plugin("importers", name) for name in plugin_names("importers")]
    return [plugin for plugin in plugins if isinstance(plugin, FileFormat)]


def _match(file: SourceFile, formats: Iterable[FileFormat]) -> FileFormat | None:
    return next((known for known in formats if known.matches(file)), None)
