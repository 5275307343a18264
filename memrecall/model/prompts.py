"""Prompts, which are files and sent verbatim.

A prompt is `prompts/NAME.LANGUAGE.md` and never a template. What varies goes into the messages
after it, so that the start of all requests is the same and a prompt can be identified by its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import cast

from memrecall.errors import NotFound
from memrecall.model import protocol
from memrecall.types import Language

FILE_NAME = re.compile(r"([a-z][a-z0-9_]*)\.(en|zh)\.md")
OFFLINE_FAMILY = "memrecall-offline"  # the model family of the client that works without a model


def answers_by_rules(client: protocol.ChatCompletionClient | None) -> bool:
    """Return True if there is no model behind a client: it is None or works offline."""
    return client is None or bool(client.model_info["family"] == OFFLINE_FAMILY)


def load_prompt(name: str, language: Language) -> str:
    """Return the text of a prompt, without surrounding space."""
    prompts = _read(_folder())
    try:
        return prompts[name, language]
    except KeyError:
        hint = "There are: " + (", ".join(map(".".join, prompts)) or "none")
        raise NotFound(f"there is no prompt {name}.{language}", hint=hint) from None


def prompt_name(text: str) -> tuple[str, Language] | None:
    """Return the name and language of the prompt with exactly this text, if any."""
    return _names(_folder()).get(text)


def _folder() -> Path:
    """Return the folder in the installed package, or next to it in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "prompts.d"
    return installed if installed.is_dir() else package.parent / "prompts"


@cache
def _read(folder: Path) -> Mapping[tuple[str, Language], str]:
    return {
        (match[1], cast(Language, match[2])): file.read_text("utf-8").strip()
        for file in sorted(folder.glob("*.md"))
        if (match := FILE_NAME.fullmatch(file.name))
    }


@cache
def _names(folder: Path) -> Mapping[str, tuple[str, Language]]:
    return {text: key for key, text in _read(folder).items()}
