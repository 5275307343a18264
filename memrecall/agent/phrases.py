"""Texts of the loop and its tools for a model or a parent: phrases in both languages, and JSON.

Each phrase says what happened and what to do next. A missing value raises KeyError.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from memrecall.text.language import fill_phrase, read_phrases
from memrecall.types import Language

_FOLDER = Path(__file__).parent
_PHRASES = read_phrases(_FOLDER / "phrases.json")
# Stop reasons, limits and error codes inside Chinese sentences.
_CODES_ZH: dict[str, str] = json.loads((_FOLDER / "codes.zh.json").read_text("utf-8"))

say = partial(fill_phrase, _PHRASES)


def say_codes(language: Language, *codes: str) -> str:
    """Return stop reasons, limits or error codes for use inside a sentence."""
    if language == "zh":
        return "、".join(_CODES_ZH.get(code, code) for code in codes)
    return ", ".join(codes)


def to_json(value: Any) -> str:
    """Return compact JSON with readable letters, as models read it best."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
