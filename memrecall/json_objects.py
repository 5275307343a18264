"""JSON objects in texts: lines of files that users write, and what models and tools return."""

import json
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.text_length import truncate_text


def parse_json_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line in UTF-8; InvalidArgument says what is wrong with it.

    A key that is given twice is an error: one of its values would be lost.
    """
    try:
        data = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_reject_duplicates)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"not UTF-8 at byte {error.start}") from None
    except InvalidArgument:  # is a ValueError too
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidArgument("not a JSON object")
    return data


def load_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a text, None if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def make_storable(value: Any, longest: int | None = None) -> Any:
    """Return a JSON value without NUL and lone surrogates, which neither databases nor UTF-8 take.

    Texts and lists that are longer than `longest` are cut.
    """
    if isinstance(value, str):
        text = value if longest is None else truncate_text(value, longest)
        return text if text.isascii() and "\0" not in text else _replace_unstorable(text)
    if isinstance(value, dict):
        return {make_storable(k, longest): make_storable(v, longest) for k, v in value.items()}
    if isinstance(value, list):
        return [make_storable(item, longest) for item in value[:longest]]
    return value


def _replace_unstorable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"{duplicate} is given twice")
    return data
