"""What a model sees of a tool's answer: JSON without nulls or empty parts, within a size.

Smaller than what the tool returned, and it says so where something was cut.
"""

import json
from typing import Any

from pydantic import BaseModel

from memrecall.agent.phrases import say
from memrecall.agent.tools.models import GetMemoryDetailOutput, SearchMemoriesOutput
from memrecall.model.prompts import Language

SEARCH_CHARACTERS = 2_900
DETAIL_CHARACTERS = 4_000
_KEYWORDS_SHOWN = 5
_WHOLE = 200  # characters of a preview that was not cut
_MESSAGE = 500
# How long previews may be, and how many results are shown: tried in turn until the text fits.
_FITS = [(size, 10) for size in (_WHOLE, 150, 110, 80, 50, 30, 15, 0)] + [(0, 5), (0, 1)]


def render(output: BaseModel, language: Language) -> str:
    """A tool's answer as the text that goes into the conversation."""
    match output:
        case SearchMemoriesOutput():
            return _render_search(output, language)
        case GetMemoryDetailOutput():
            return _render_detail(output, language)
    return to_json(_slim(output.model_dump(mode="json")))


def to_json(value: Any) -> str:
    """JSON as a model reads it best: letters as they are, no space for nothing."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _slim(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}


def _render_search(output: SearchMemoriesOutput, language: Language) -> str:
    if not output.success:
        return to_json(
            {"success": False, "total_found": output.total_found, "results": []}
            | _slim({"error": output.error, "message": output.message})
        )
    text = ""
    for size, count in _FITS:
        text = to_json(_search_fields(output, size, count, language))
        if len(text) <= SEARCH_CHARACTERS:
            break
    return text


def _search_fields(
    output: SearchMemoriesOutput, size: int, count: int, language: Language
) -> dict[str, Any]:
    shown = [_search_item(item.model_dump(), size) for item in output.results[:count]]
    cut = say(language, "previews_cut", size=size) if size < _WHOLE else None
    return {
        "total_found": output.total_found,
        "returned": len(shown),
        "searched": output.searched,
        "results": shown,
    } | _slim(
        {
            "told_of": output.told_of,
            "message": (output.message or "")[:_MESSAGE],
            "truncated": cut,
        }
    )


def _search_item(item: dict[str, Any], size: int) -> dict[str, Any]:
    item["why"] = item["session_id"] = None
    if item["kind"] == "message":  # its type says the same, and it has no summary of its own
        item["kind"] = None
    if item["speaker"]:
        item["role"] = item["role"] if item["role"] != "other" else None
    if item["passage"]:  # the part that was asked for says more than the beginning
        item["content_preview"] = item.pop("passage")
    if item["summary"] and item["content_preview"].startswith(item["summary"]):
        item["summary"] = ""
    item["keywords"] = item["keywords"][:_KEYWORDS_SHOWN] if size >= 80 else []
    for name in ("content_preview", "summary", "speaker"):
        if len(item[name] or "") > size + 3:
            item[name] = item[name][:size] + "…" if size else ""
    return _slim(item)


def _render_detail(output: GetMemoryDetailOutput, language: Language) -> str:
    fields = _slim(output.model_dump(mode="json"))
    content = output.content or ""
    if len(content) > DETAIL_CHARACTERS:
        fields["content"] = content[:DETAIL_CHARACTERS] + "…"
        fields["truncated"] = say(
            language, "content_cut", shown=DETAIL_CHARACTERS, total=len(content)
        )
    if len(to_json(fields.get("metadata"))) > 500:  # written by others, for others
        del fields["metadata"]
    return to_json(fields)
