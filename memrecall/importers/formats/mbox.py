"""Mail in an mbox file, as Gmail's Takeout, Thunderbird and Apple Mail write it, or one `.eml`."""

import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import getaddresses, parsedate_to_datetime

from memrecall.importers.html_text import html_to_text
from memrecall.importers.records import (
    Fault,
    FileFormat,
    Item,
    Note,
    ReadOptions,
    digest,
    in_zone,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.types import Role

_MAX_MAIL = 16 * 1024**2  # bytes; a longer mail is read to here, which cuts attachments at its end
_MAX_BODY = 1024**2  # characters
_START = re.compile(rb"From \S")
_HEADERS = re.compile(r"(?:From \S[^\n]*\r?\n)?(?:>?[A-Za-z][A-Za-z0-9-]{0,60}:[ \t][^\n]*\n)")
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


def _read(file: SourceFile, options: ReadOptions) -> Iterator[Item]:
    for number, (data, is_cut) in enumerate(_split(file), 1):
        if is_cut:
            yield Note(f"mails above {_MAX_MAIL // 1024**2} MiB are read without their end")
        try:
            mail = message_from_bytes(data, policy=policy.default)
            if isinstance(mail, EmailMessage):
                yield _read_mail(number, mail, options)
        except (MessageError, LookupError, ValueError, RecursionError, AttributeError) as error:
            # The parser of the standard library raises these on broken headers and parts.
            yield Fault(number, f"the mail cannot be read: {error or type(error).__name__}")


def _split(file: SourceFile) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of each mail, and whether its end was left out."""
    parts: list[bytes] = []
    size, was_blank = 0, True
    for _, line in file.byte_lines():
        if line is not None and was_blank and _START.match(line):
            if parts:
                yield b"".join(parts), size > _MAX_MAIL
            parts, size = [], 0
            continue
        size += _MAX_MAIL if line is None else len(line)
        if line is not None and size <= _MAX_MAIL:
            parts.append(line[1:] if line.startswith(b">From ") else line)
        was_blank = line is not None and not line.strip()
    if parts:
        yield b"".join(parts), size > _MAX_MAIL


def _read_mail(number: int, mail: EmailMessage, options: ReadOptions) -> Item:
    name, address = next(iter(getaddresses([str(mail["From"] or "")])), ("", ""))
    date = str(mail["Date"] or "")
    try:
        ts = in_zone(parsedate_to_datetime(date), options.zone)
    except (ValueError, TypeError, OverflowError):
        return Fault(number, f"date {date!r} is not a time")
    subject = " ".join(str(mail["Subject"] or "").split())
    key = str(mail["Message-ID"] or "").strip() or digest(date, address, subject)
    references = str(mail["References"] or "").split()
    parent = next(iter(str(mail["In-Reply-To"] or "").split()), "")
    root = references[0] if references else parent or key
    text = cut_quotes(_body_of(mail))
    return message_record(
        number,
        message_id=stable_id("mbox", digest(key)),
        session_id=stable_id("mbox", digest(root)),
        role=Role.OTHER,
        speaker=name or address,
        names=tuple(filter(None, (address,))),
        # The subject of a first mail is part of what it says.
        text=f"{subject}\n{text}" if text and subject and root == key else text,
        ts=ts,
        conversation=subject,
        reply_to=stable_id("mbox", digest(parent)) if parent else None,
    )


def _body_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain", "html"))
    if part is None:
        return ""
    content = part.get_content()
    text = content if isinstance(content, str) else ""
    text = text[:_MAX_BODY]
    return html_to_text(text) if part.get_content_subtype() == "html" else text


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


FORMAT = FileFormat("mbox", _matches, _read, between_people=True)
