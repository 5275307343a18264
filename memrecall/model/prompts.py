"""Prompts are files: `prompts/NAME.LANGUAGE.md`, sent exactly as they are written.

A prompt is never a template. What varies goes into the messages after it, so that the beginning
of every request is the same and a prompt can be told by its text.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, cast

from memrecall.errors import NotFound

Language = Literal["en", "zh"]
FILE_NAME = re.compile(r"([a-z][a-z0-9_]*)\.(en|zh)\.md")


def load_prompt(name: str, language: Language) -> str:
    """The text of a prompt, without the space around it."""
    prompts = _read(_folder())
    try:
        return prompts[name, language]
    except KeyError:
        known = ", ".join(f"{name}.{language}" for name, language in prompts) or "none"
        raise NotFound(
            f"there is no prompt {name}.{language}", hint=f"There are: {known}"
        ) from None


def prompt_name(text: str) -> tuple[str, Language] | None:
    """Tell which prompt has exactly this text, if any has."""
    return _names(_folder()).get(text)


def _folder() -> Path:
    """Inside the installed package; in a checkout, beside it."""
    package = Path(__file__).parent.parent
    installed = package / "prompts.d"
    return installed if installed.is_dir() else package.parent / "prompts"


@cache
def _read(folder: Path) -> Mapping[tuple[str, Language], str]:
    files = sorted(folder.glob("*.md"))
    named = [(match, file) for file in files if (match := FILE_NAME.fullmatch(file.name))]
    return {
        (match[1], cast(Language, match[2])): file.read_text("utf-8").strip()
        for match, file in named
    }


@cache
def _names(folder: Path) -> Mapping[str, tuple[str, Language]]:
    return {text: key for key, text in _read(folder).items()}
