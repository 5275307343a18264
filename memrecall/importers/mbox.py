"""Mail in an mbox file, as Gmail's Takeout, Thunderbird and Apple Mail write it, or one `.eml`."""

import codecs
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime

from memrecall.importers import records
from memrecall.importers.html_text import html_to_text
from memrecall.importers.source import Source, SourceFile

_MAX_MAIL = 16 * 1024**2  # bytes; a longer mail is read to here, which cuts attachments at its end
_MAX_BODY = 1024**2  # characters
_MAX_FIELD = 4 * 1024  # bytes
_MAX_MULTIPARTS = 100
_CHARSET = re.compile(r"charset\s?=\s?[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_START = re.compile(rb"From \S")
_HEADERS = re.compile(r"(?:From \S[^\n]*\r?\n)?(?:>?[A-Za-z][A-Za-z0-9-]{0,60}:[ \t][^\n]*\n)")
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_SIGNATURE = re.compile(r"--\s?$")
_INTRODUCTION = re.compile(
    r"(?:On\b.{4,300}\bwrote:|Am\b.{4,300}\bschrieb.{0,100}:|Le\b.{4,300}\ba écrit ?:|"
    r"在.{4,300}写道[:：]|.{0,100}于.{4,100}写道[:：])\s*$"
)
_ORIGINAL = re.compile(
    r"(?:-{2,}\s?(?:Original Message|Forwarded message|原始邮件|转发邮件|回复的原邮件).{0,20}|"
    r"_{20,}\s*)$",
    re.IGNORECASE,
)


def _matches(file: SourceFile) -> bool:
    if file.suffix not in (".mbox", ".eml", ".mbx", ""):
        return False
    has_start = file.head.startswith(b"From ") or file.suffix == ".eml"
    return has_start and _HEADERS.match(file.sample) is not None


def _read(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    shared = file.source.shared
    if "mail" not in shared:
        shared["mail"] = _read_parents(file.source)
    for number, (data, is_cut) in enumerate(_split(file), 1):
        if is_cut:
            yield records.Note(f"mails above {_MAX_MAIL // 1024**2} MiB are read without their end")
        if data.lower().count(b"multipart/") > _MAX_MULTIPARTS:
            yield records.Fault(number, f"the mail has more than {_MAX_MULTIPARTS} groups of parts")
        else:
            yield _read_mail(number, message_from_bytes(data), options, shared["mail"])


def _read_parents(source: Source) -> dict[str, str]:
    """Return the mail that each mail of a source answers, or the first one that it refers to."""
    mails = (data for file in filter(_matches, source.files) for data, _ in _split(file))
    heads = (message_from_bytes(_BLANK_LINE.split(data, 1)[0]) for data in mails)
    pairs = ((_header(head, "Message-ID").strip(), _references(head)) for head in heads)
    return {key: names[0] for key, names in pairs if key and names}


def _references(mail: Message) -> list[str]:
    """Return the mails before this one in its thread, the first one first."""
    return [*_header(mail, "References").split(), *_header(mail, "In-Reply-To").split()[:1]]


def _find_root(parents: dict[str, str], key: str) -> str:
    """Return the first mail of a thread, which may not be there itself."""
    path: dict[str, None] = {}
    while key in parents and key not in path:
        path[key] = None
        key = parents[key]
    parents.update(dict.fromkeys(path, key))  # so that a long thread takes linear time
    return key


def _split(file: SourceFile) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of each mail, and whether its end was left out."""
    parts: list[bytes] = []
    size, was_blank, fields = 0, True, _FieldLimit()
    for _, line in file.byte_lines():
        if line is not None and was_blank and _START.match(line):
            if parts:
                yield b"".join(parts), size > _MAX_MAIL
            parts, size, fields = [], 0, _FieldLimit()
            continue
        size += _MAX_MAIL if line is None else len(line)
        if line is not None and size <= _MAX_MAIL:
            parts.append(fields.cut(line[1:] if line.startswith(b">From ") else line))
        was_blank = line is not None and not line.strip()
    if parts:
        yield b"".join(parts), size > _MAX_MAIL


class _FieldLimit:
    """A limit of each header field: the standard library reads long ones in quadratic time."""

    def __init__(self) -> None:
        self._is_header = True
        self._size = 0

    def cut(self, line: bytes) -> bytes:
        """Return a line, or what fits of it into a field of the header of a mail or a part."""
        self._is_header = (self._is_header and bool(line.strip())) or line.startswith(b"--")
        if not self._is_header:
            return line
        self._size = self._size + len(line) if line[:1] in b" \t" else len(line)
        if self._size <= _MAX_FIELD:
            return line
        return line[:_MAX_FIELD] + b"\n" if self._size == len(line) else b""


def _read_mail(
    number: int, mail: Message, options: records.ReadOptions, parents: dict[str, str]
) -> records.ReadItem:
    name, address = _split_address(_header(mail, "From"))
    date = _header(mail, "Date")
    try:
        ts = records.in_zone(parsedate_to_datetime(date), options.zone)
    except (ValueError, TypeError, OverflowError, IndexError):
        return records.Fault(number, f"date {date!r} is not a time")
    subject = " ".join(_header(mail, "Subject").split())
    key = _header(mail, "Message-ID").strip() or records.digest(date, address, subject)
    parent = next(iter(_header(mail, "In-Reply-To").split()), "")
    root = _find_root(parents, next(iter(_references(mail)), key))
    text = cut_quotes(_body_of(mail))
    if text and subject and root == key:  # the subject of a first mail is part of what it says
        text = f"{subject}\n{text}"
    reply = records.stable_id("mbox", records.digest(parent)) if parent else None
    message_id = records.stable_id("mbox", records.digest(key))
    names = (name or address, *filter(None, (address,)))
    thread = records.PeopleChat("mbox", records.digest(root), subject)
    return thread.message(number, message_id, names, (text, "text"), ts, reply_to=reply)


def _split_address(text: str) -> tuple[str, str]:
    """Return the name and the address of `Name <address>`; the library's parser recurses."""
    name, bracket, rest = text.rpartition("<")
    address = rest.partition(">")[0].strip() if bracket else text.strip()
    return name.strip().strip("\"'").strip(), address


def _header(mail: Message, name: str) -> str:
    """Return a header as text; as it stands if it is encoded in an unknown way."""
    value = str(mail.get(name, ""))
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        return value


def _body_of(mail: Message) -> str:
    """Return the first plain text that is no attachment, else the text of the first HTML."""
    bodies: dict[str, str] = {}
    for part in mail.walk():
        kind, _, parameters = str(part.get("Content-Type", "text/plain")).partition(";")
        kind = kind.strip().lower()
        disposition = str(part.get("Content-Disposition", "")).lower()
        if kind in ("text/plain", "text/html") and not disposition.startswith("attachment"):
            bodies.setdefault(kind, _decode(part, parameters)[:_MAX_BODY])
    return bodies.get("text/plain") or html_to_text(bodies.get("text/html", ""))


def _decode(part: Message, parameters: str) -> str:
    data = part.get_payload(decode=True)
    charset = _CHARSET.search(parameters)
    try:
        encoding = codecs.lookup(charset[1]).name if charset else "utf-8"
    except LookupError:
        encoding = "utf-8"
    return data.decode(encoding, errors="replace") if isinstance(data, bytes) else ""


def cut_quotes(text: str) -> str:
    """Return what a mail says itself: without quoted mails, forwarded ones and the signature."""
    lines = text.splitlines()
    kept: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith(">"):
            continue
        # An introduction may be broken over two lines.
        after = next((later for later in lines[at + 1 : at + 4] if later.strip()), "")
        joined = f"{line} {after}" if line.startswith(("On ", "Am ", "Le ", "在")) else line
        is_introduction = _INTRODUCTION.match(line) or (
            len(joined) < 400 and _INTRODUCTION.match(joined)
        )
        if is_introduction and not after.startswith(">") and _INTRODUCTION.match(line):
            break
        if is_introduction:
            continue
        if _ORIGINAL.match(line) or _SIGNATURE.match(line):
            break
        kept.append(line.rstrip())
    return "\n".join(kept).strip()


FORMAT = records.FileFormat("mbox", _matches, _read, between_people=True)
