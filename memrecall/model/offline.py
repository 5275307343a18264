"""Rules that answer prompts without a model, and what they are given.

Prompts have names, and each name may have a rule. The rules live in the layers that own the
prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from memrecall.json_objects import load_json_object
from memrecall.model import protocol
from memrecall.types import Language

OFFLINE_FAMILY = "memrecall-offline"  # the model family of the client that answers by rules


@dataclass(frozen=True)
class RuleRequest:
    """The input of a rule: the messages after the prompt, and the available tools.

    `forced` names the tool that must be called; with `required` some tool must be called.
    """

    prompt: str
    language: Language
    messages: tuple[protocol.LLMMessage, ...]
    tools: tuple[str, ...] = ()
    forced: str | None = None
    required: bool = False

    def json_lines(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of messages that hold one per line, skipping other lines."""
        for message in self.messages:
            if isinstance(message.content, str):
                yield from filter(None, map(load_json_object, message.content.split("\n")))


@dataclass(frozen=True)
class RuleCall:
    """A tool call made by a rule."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleAnswer:
    """The answer of a rule: text or calls."""

    text: str = ""
    calls: tuple[RuleCall, ...] = ()
    thought: str = ""


Rule = Callable[[RuleRequest], RuleAnswer]
