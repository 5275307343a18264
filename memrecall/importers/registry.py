"""The formats that are recognised, with those of other packages, and the format of a file.

A package adds one in its `pyproject.toml`:

    [project.entry-points."memrecall.importers"]
    acme = "acme_memrecall:ACME"          # a `memrecall.importers.FileFormat`
"""

from collections.abc import Iterable
from difflib import get_close_matches

from memrecall.errors import InvalidArgument
from memrecall.importers import jsonl
from memrecall.importers.formats import (
    assistants,
    coding_assistants,
    mbox,
    model_messages,
    plain_text,
    tables,
    team_chats,
    wechat,
)
from memrecall.importers.records import FileFormat
from memrecall.importers.source import Source, SourceFile
from memrecall.plugins import find_plugin, plugin_names

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
