"""Gemini in Google Takeout: `MyActivity.json`, one entry for each prompt with its answer.

Takeout does not say which prompts belong to one conversation; those of a day are one session.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers.html_text import html_to_text
from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
    DerivedIds,
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    from_iso,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.types import Role

_PRODUCTS = ("Gemini", "Bard")
_PROMPT = re.compile(r"(?:Prompted|Asked|Said|Eingegebener Prompt:)\s")
_HTML_NAME = re.compile(r"(?:^|/)My ?Activity[^/]*\.html$", re.IGNORECASE)


def _matches(file: SourceFile) -> bool:
    names_product = any(product in file.sample for product in _PRODUCTS)
    if _HTML_NAME.search(file.name):
        return names_product or "Gemini" in file.name
    return names_product and has_members(file.sample, "header", "title", "time")


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    if file.suffix == ".html":
        raise InvalidArgument(
            "activity in HTML has times only in the words of your language",
            hint="Choose JSON for My Activity in Google Takeout, under «Multiple formats»",
        )
    ids = DerivedIds("gemini")
    for number, entry in read_values(file):
        yield from _read_entry(number, entry, ids)


def _read_entry(number: int, entry: Any, ids: DerivedIds) -> Iterator[ReadItem]:
    if not isinstance(entry, dict):
        yield Fault(number, "an activity that is no object")
        return
    title, ts = str(entry.get("title") or ""), from_iso(entry.get("time"))
    products = f"{entry.get('header')} {entry.get('products')}"
    answers = [html_to_text(html) for html in _answers(entry)]
    if not any(product in products for product in _PRODUCTS):
        yield Skipped(number, "activity of other products")
    elif not answers and not _PROMPT.match(title):
        yield Skipped(number, "activity that is no prompt")
    elif ts is None:
        yield Fault(number, f"time {entry.get('time')!r} is not a time")
    else:
        session = stable_id("gemini", f"{ts:%Y-%m-%d}")
        key = ids.make(ts.isoformat(), title)
        prompt = _PROMPT.sub("", title, count=1)
        yield message_record(
            number, message_id=key, session_id=session, role=Role.USER, text=prompt, ts=ts
        )
        for _ in answers[1:]:
            yield Skipped(number, "other drafts of an answer")
        if answers:
            yield message_record(
                number,
                message_id=f"{key}-answer",
                session_id=session,
                role=Role.ASSISTANT,
                text=answers[-1],
                ts=ts + timedelta(milliseconds=1),  # the time of the prompt is all there is
            )


def _answers(entry: dict[str, Any]) -> list[str]:
    items = entry.get("safeHtmlItem")
    items = items if isinstance(items, list) else []
    return [str(item["html"]) for item in items if isinstance(item, dict) and item.get("html")]


FORMAT = FileFormat("gemini", _matches, _read)
