"""Generated conversations, written in each format and read back."""

import csv
import html
import io
import json
import mailbox
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.importers.html_text import html_to_text
from memrecall.importers.source import JsonStream
from tests.importers.reading import read

NAMES = ("Maya Lopez", "陈曦", "O'Neil 2", "Zoë")
START = datetime(2024, 1, 3, 8, 0, tzinfo=UTC)


class Said(NamedTuple):
    """A message of a generated conversation."""

    speaker: str
    text: str
    ts: datetime


PHRASES = ("ok", "好的", "see you", "周六见", "14:05", "3/4/24", "- list", "> quote", "From here")
SIGNS = ("a: b", "<b>", "“x”", "{}", '"', "\\", "&amp;", ",", ";", "|", "\t", "😀", "\u00a0", "\n")
WORDS = st.sampled_from((*PHRASES, *SIGNS, "On it", "\n\n"))
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join).filter(str.strip).map(str.strip)


@st.composite
def conversations(draw: st.DrawFn) -> list[Said]:
    """Return a conversation of a few minutes to a few years."""
    said, ts = [], START
    for _ in range(draw(st.integers(1, 6))):
        ts += timedelta(minutes=draw(st.sampled_from([0, 1, 60, 60 * 24 * 40])))
        said.append(Said(draw(st.sampled_from(NAMES)), draw(TEXTS), ts))
    return said


def write_slack(said: list[Said]) -> dict[str, str]:
    files: dict[str, list[Any]] = {}
    users = [{"id": f"U{number}", "name": name} for number, name in enumerate(NAMES)]
    for number, item in enumerate(said):
        message = {
            "type": "message",
            "user": f"U{NAMES.index(item.speaker)}",
            "text": html.escape(item.text, quote=False),
            "ts": f"{int(item.ts.timestamp())}.{number:06}",
        }
        files.setdefault(f"general/{item.ts:%Y-%m-%d}.json", []).append(message)
    return {name: json.dumps(data) for name, data in {**files, "users.json": users}.items()}


def write_whatsapp(pattern: str) -> Callable[[list[Said]], dict[str, str]]:
    def write(said: list[Said]) -> dict[str, str]:
        def head(ts: datetime) -> str:
            return ts.strftime(pattern).format(ts.day, ts.month)

        lines = (f"{head(item.ts)}{item.speaker}: {item.text}\n" for item in said)
        return {"chat.txt": f"{head(START)}Encrypted.\n{''.join(lines)}"}

    return write


def write_wechat_text(said: list[Said]) -> dict[str, str]:
    lines = (f"{item.ts:%Y-%m-%d %H:%M:%S} {item.speaker}\n{item.text}\n\n" for item in said)
    return {"chat.txt": "".join(lines)}


def write_table(
    header: list[str], row: Callable[[int, Said], list[str]], delimiter: str = ","
) -> Callable[[list[Said]], dict[str, str]]:
    def write(said: list[Said]) -> dict[str, str]:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(row(number, item) for number, item in enumerate(said))
        return {"chat.csv": text.getvalue()}

    return write


def write_mbox(said: list[Said]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        box = mailbox.mbox(Path(folder, "mail.mbox"))
        for number, item in enumerate(said):
            mail = EmailMessage()
            mail["From"] = f'"{item.speaker}" <a@example.org>'
            mail["Date"] = format_datetime(item.ts)
            mail["Message-ID"] = f"<{number}@example.org>"
            mail.set_content(item.text + "\n")
            box.add(mail)
        box.close()
        return {"mail.mbox": Path(folder, "mail.mbox").read_text("utf-8")}


WECHAT = ["localId", "Type", "IsSender", "CreateTime", "StrContent", "NickName"]
WRITERS: dict[str, tuple[str, Callable[[list[Said]], dict[str, str]]]] = {
    "slack": ("slack", write_slack),
    "whatsapp of Android": ("whatsapp", write_whatsapp("{1}/{0}/%y, %-I:%M\u202f%p - ")),
    "whatsapp of iOS": ("whatsapp", write_whatsapp("[%d.%m.%y, %H:%M:%S] ")),
    "whatsapp in Chinese": ("whatsapp", write_whatsapp("%Y/{1}/{0} %H:%M - ")),
    "wechat text": ("wechat", write_wechat_text),
    "wechat table": (
        "wechat",
        write_table(
            WECHAT,
            lambda number, item: [
                *(str(number), "1", "0", str(int(item.ts.timestamp()))),
                *(item.text, item.speaker),
            ],
        ),
    ),
    "mbox": ("mbox", write_mbox),
    "csv": (
        "csv",
        write_table(
            ["time", "sender", "text"],
            lambda _, item: [f"{item.ts:%d/%m/%Y %H:%M}", item.speaker, item.text],
            ";",
        ),
    ),
}


def expected_text(name: str, text: str) -> str | None:
    """Return what the format keeps of a text; None if it cannot be told from something else."""
    if name == "mbox":
        lines = [line for line in text.splitlines() if not line.startswith(">")]
        kept = "\n".join(line.rstrip() for line in lines).strip()
        return kept or None
    return text


@pytest.mark.parametrize("kind", WRITERS)
@given(said=conversations())
@settings(max_examples=10)
def test_written_conversation_is_read_back(kind: str, said: list[Said]) -> None:
    name, write = WRITERS[kind]
    with tempfile.TemporaryDirectory() as folder:
        for file_name, text in write(said).items():
            path = Path(folder, file_name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
        result = read(Path(folder), name, date_order="mdy" if "Android" in kind else None)
        assert read(
            Path(folder), date_order="mdy" if "Android" in kind else None
        ).survey.formats == (result.survey.formats)
    expected = [(item, expected_text(name, item.text)) for item in said]
    kept = [(item, kept_text) for item, kept_text in expected if kept_text is not None]
    found = sorted(
        (m.speaker or "", m.content, (m.ts or START).replace(microsecond=0))
        for m in result.messages
    )
    assert result.survey.bad == []
    assert found == sorted((item.speaker, text, item.ts) for item, text in kept)
    assert len(set(result.ids)) == len(kept)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


class SmallReads(io.StringIO):
    """A text of which each read returns little."""

    def read(self, size: int | None = -1) -> str:
        return super().read(3)


@given(values=st.lists(JSON, max_size=5), indent=st.sampled_from([None, 2]))
@settings(max_examples=40)
def test_stream_of_json_equals_the_whole(values: list[Any], indent: int | None) -> None:
    reader = JsonStream(SmallReads(json.dumps(values, indent=indent)))
    assert [reader.value() for _ in reader.elements()] == values
    assert reader.peek() == ""
    again = JsonStream(SmallReads(json.dumps({"skipped": values, "kept": values})))
    found = {}
    for name in again.members():
        if name == "kept":
            found[name] = again.value()
        else:
            again.skip()
    assert found == {"kept": values}


@given(text=st.text(max_size=60))
def test_escaped_text_survives_html(text: str) -> None:
    # Blanks are not kept, nor control characters, which HTML cannot express.
    clean = "".join(char for char in text if char.isprintable() or char.isspace())
    markup = f"<div class='a'><p>{html.escape(clean)}</p><!-- x --><style>p {{}}</style></div>"
    assert html_to_text(markup).split() == clean.split() or html_to_text(markup) == ""
