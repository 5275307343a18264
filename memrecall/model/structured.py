"""Structured answers: a prompt or messages in, a validated pydantic model out.

Models write JSON in fences and prose, half Python, or truncated. The package json-repair invents
values (`{"a": tru` gives "tru", prose gives lists) and takes quadratic time for `['` many times, so
it cannot read the answers of a model that nobody trusts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from memrecall.errors import CallerError, ModelFailed, describe_validation_problem
from memrecall.json_objects import make_storable
from memrecall.model import protocol
from memrecall.model.failures import create_accepted
from memrecall.model.prompts import load_prompt
from memrecall.types import Language

T = TypeVar("T", bound=BaseModel)

_MAX_PROBLEMS = 5
_ATTEMPTS = 2


@dataclass(frozen=True)
class Structured(Generic[T]):
    """A validated value, or None and the problem.

    None means "no usable answer", neither yes nor no.
    """

    value: T | None
    problem: str = ""


async def ask_json(
    ask: Callable[[Sequence[protocol.LLMMessage]], Awaitable[protocol.CreateResult]],
    messages: Sequence[protocol.LLMMessage],
    model: type[T],
) -> Structured[T]:
    """Ask for JSON that fits the pydantic `model`, again if the answer is unusable."""
    conversation = list(messages)
    answer: Structured[T] = Structured(None)
    for _ in range(_ATTEMPTS):
        reply = await ask(conversation)
        answer = _parse_reply(reply, model)
        if answer.value is not None:
            break
        if isinstance(reply.content, str) and reply.content.strip():
            conversation.append(
                protocol.AssistantMessage(content=reply.content, source="assistant")
            )
        request = f"That answer cannot be used: {answer.problem}."
        request += " Answer again with the JSON object alone."
        conversation.append(protocol.UserMessage(content=request, source="user"))
    return answer


def _parse_reply(reply: protocol.CreateResult, model: type[T]) -> Structured[T]:
    if not isinstance(reply.content, str):
        return Structured(None, "it is a tool call, not JSON")
    if not reply.content.strip():
        return Structured(None, "it is empty")
    try:
        value = repair_json(reply.content, allow_truncated=False)
        if isinstance(value, str):  # JSON inside a string
            value = repair_json(value, allow_truncated=False)
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            value = value[0]
        return Structured(model.model_validate(make_storable(value)))
    except ValidationError as error:
        # Without the values, which may be long.
        problems = map(describe_validation_problem, error.errors()[:_MAX_PROBLEMS])
        return Structured(None, "; ".join(problems))
    except ValueError as error:
        return Structured(None, f"it is not JSON: {error}")


SOURCE = "memrecall"
_log = logging.getLogger(__name__)


async def ask_prompt(
    client: protocol.ChatCompletionClient,
    prompt: str,
    language: Language,
    lines: Iterable[str],
    answer: type[T],
    *,
    seconds: float,
) -> Structured[T]:
    """Return the answer to a prompt over lines of data; a failure becomes a problem.

    Cassette mismatches, exhausted scripts and cancellations are raised.
    """
    messages: list[protocol.LLMMessage] = [
        protocol.SystemMessage(content=load_prompt(prompt, language)),
        protocol.UserMessage(content="\n".join(lines), source=SOURCE),
    ]
    try:
        async with asyncio.timeout(seconds):
            json_output = client.model_info["json_output"] or None
            ask = partial(create_accepted, client, json_output=json_output)
            return await ask_json(ask, messages, answer)
    except CallerError:
        raise
    except TimeoutError:
        problem = f"the model did not answer in {seconds:g} seconds"
    except ModelFailed as failure:
        problem = f"the model failed: {failure.kind}"
    except Exception as error:  # other clients may raise anything
        # Its message may quote the conversation.
        problem = f"the model failed: {type(error).__name__}"
    _log.warning("prompt %s: %s", prompt, problem)
    return Structured(None, problem)


_LITERALS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_MAX_DEPTH = 200
# How many positions are tried as the start, which keeps the time linear.
_MAX_STARTS = 32

_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*+|,)*+(?:
        (?P<mark>[{}\[\]:])
      | "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)(?P<double_end>"|\\?\Z)
      | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)(?P<single_end>'|\\?\Z)
      | (?P<number>-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)(?=[^\w.])
      | (?P<word>[^\W\d][\w-]*+)
      | (?P<end>[-+.\deE]*+\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\(.)", re.DOTALL)
_CONTROL_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_LITERAL_ESCAPES = "\"'\\/"


class TruncatedJson(ValueError):
    """A text that ends before its JSON value does."""


def repair_json(text: str, *, allow_truncated: bool = True) -> object:
    """Return the JSON value in a text, or the value that was most likely meant.

    Accepts code fences, prose around an object or list, trailing and missing commas, single quotes,
    Python's literals, names without quotes, and truncated text, of which complete values and the
    start of a string are kept. Raises ValueError if there is no object or list, and TruncatedJson
    for truncated text unless it is allowed.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    word = text.strip(" \t\r\n`")
    if word in _LITERALS:
        return _LITERALS[word]
    problem = "no JSON object or list in the text"
    for start in islice(_starts(text), _MAX_STARTS):
        try:
            return _JsonParser(text, start, allow_truncated=allow_truncated).read()
        except TruncatedJson:
            raise  # A complete value inside the truncated one is not the answer.
        except ValueError as error:
            problem = str(error)
    raise ValueError(problem)


def _starts(text: str) -> Iterator[int]:
    """Yield where an object or list may begin, code fences first."""
    for fence in islice(re.finditer(r"```\w*+\s*+(?=[{\[])", text), _MAX_STARTS // 4):
        yield fence.end()
    for bracket in re.finditer(r"[{\[]", text):
        yield bracket.start()


class _JsonParser:
    """A non-recursive parser of one value from a position."""

    def __init__(self, text: str, start: int, *, allow_truncated: bool) -> None:
        self._text = text
        self._allow_truncated = allow_truncated
        self._position = start
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []  # of each open object: the key without a value yet

    def read(self) -> object:
        """Return the value, closed at the end of the text if necessary."""
        while True:
            token = _TOKEN.match(self._text, self._position)
            if token is None:
                raise ValueError(f"no JSON at position {self._position}")
            self._position = token.end()
            if token["end"] is not None:
                if not self._allow_truncated:
                    raise TruncatedJson(f"it is cut off after {len(self._text)} characters")
                return self._open[0]
            if (mark := token["mark"]) is None:
                self._take(token)
            elif mark in "{[":
                self._begin({} if mark == "{" else [])
            elif mark != ":" and self._finish(dict if mark == "}" else list):
                return self._open[0]

    def _begin(self, container: dict[str, object] | list[object]) -> None:
        if len(self._open) == _MAX_DEPTH:
            raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
        if self._open:
            self._put(container)
        self._open.append(container)
        self._keys.append(None)

    def _finish(self, kind: type) -> bool:
        """Close the innermost container of a kind; return True if all are closed."""
        if not any(isinstance(container, kind) for container in self._open):
            raise ValueError(f"brackets do not match at position {self._position}")
        while not isinstance(self._open[-1], kind):
            self._open.pop()
            self._keys.pop()
        if len(self._open) == 1:
            return True
        self._open.pop()
        self._keys.pop()
        return False

    def _take(self, token: re.Match[str]) -> None:
        if isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._take_key(token)
        elif (word := token["word"]) is None:
            self._put(_scalar(token))
        elif word in _LITERALS:
            self._put(_LITERALS[word])
        elif self._position < len(self._text):  # otherwise the word is truncated and unknown
            raise ValueError(f"{word[:20]!r} is not JSON at position {token.start()}")

    def _take_key(self, token: re.Match[str]) -> None:
        colon = re.compile(r"\s*+:").match(self._text, self._position)
        if colon is not None:
            self._keys[-1] = token["word"] or str(_scalar(token))
            self._position = colon.end()
        elif self._text[self._position :].strip():
            raise ValueError(f"a name without a value at position {token.start()}")
        else:
            self._position = len(self._text)

    def _put(self, value: object) -> None:
        container = self._open[-1]
        if isinstance(container, list):
            container.append(value)
            return
        key = self._keys[-1]
        if key is None:
            raise ValueError(f"a value without a name at position {self._position}")
        container[key] = value
        self._keys[-1] = None


def _scalar(token: re.Match[str]) -> object:
    if (number := token["number"]) is not None:
        return float(number) if re.search(r"[.eE]", number) else int(number)
    body = token["double"] if token["double"] is not None else token["single"]
    return _ESCAPE.sub(_unescape, body)


def _unescape(escape: re.Match[str]) -> str:
    character = escape[1]
    if character is None:
        return str(json.loads(f'"{escape[0]}"'))
    if character in _LITERAL_ESCAPES:
        return character
    return _CONTROL_ESCAPES.get(character, escape[0])
