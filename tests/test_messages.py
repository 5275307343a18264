"""The one parser of messages: every form, for `add` and for `recall`."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)
from PIL import Image as Picture
from pydantic import BaseModel, ValidationError

from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.importers.jsonl import read_entry
from memrecall.messages import ConversationMessage, parse_messages, parse_new_messages
from memrecall.server.http.models import AddRequest, WriteRequest
from memrecall.server.http.recall import RecallRequest
from memrecall.types import Message, NewMessage, Role

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Parsed = list[tuple[str, str, str | None, str]]


@dataclass
class LangChainMessage:
    """The attributes of `langchain_core.messages.BaseMessage` and its subclasses."""

    content: str | list[str | dict[str, Any]]
    type: str
    name: str | None = None
    id: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    tool_call_id: str | None = None
    additional_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class AgentFrameworkContent:
    """The attributes of a content of `agent_framework`."""

    type: str
    text: str | None = None
    result: str | None = None
    media_type: str | None = None
    uri: str | None = None


@dataclass
class AgentFrameworkMessage:
    """The attributes of `agent_framework.ChatMessage`."""

    role: object
    contents: list[AgentFrameworkContent]
    author_name: str | None = None
    message_id: str | None = None

    @property
    def text(self) -> str:
        return "".join(content.text or "" for content in self.contents)


def parse_for_recall(messages: object) -> list[ConversationMessage]:
    return list(parse_messages(messages))


def from_new_message(message: NewMessage) -> ConversationMessage:
    first = ("role", "content", "speaker", "ts", "message_id", "parent_message_id")
    names = (*first, "content_type", "metadata")
    return ConversationMessage(*(getattr(message, name) for name in names))


def parse_for_add(messages: object) -> list[ConversationMessage]:
    return [from_new_message(message) for message in parse_new_messages(messages)]


def parse_request(model: type[BaseModel], messages: object) -> Any:
    """Return the messages of a request with this JSON."""
    try:
        request = model.model_validate(json.loads(json.dumps({"messages": messages})))
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    return request.messages  # type: ignore[attr-defined]


def parse_for_http_add(messages: object) -> list[ConversationMessage]:
    return parse_for_add(parse_request(AddRequest, messages))


def parse_for_http_recall(messages: object) -> list[ConversationMessage]:
    return parse_for_recall(parse_request(RecallRequest, messages))


def parse_for_http_write(messages: object) -> list[ConversationMessage]:
    return [from_new_message(message) for message in parse_request(WriteRequest, messages)]


def parse_for_import(messages: object) -> list[ConversationMessage]:
    assert isinstance(messages, list)
    defaults = {"user_id": "u", "message_id": "m", "ts": TIME.isoformat()}
    lines = [json.dumps({**defaults, **message}).encode() for message in messages]
    return [from_new_message(read_entry(line).message) for line in lines]


Parser = Callable[[object], list[ConversationMessage]]
# Which forms an entry point can get: Python objects, JSON, or complete messages as JSON.
ENTRY_POINTS: dict[Parser, str] = {
    parse_for_recall: "object",
    parse_for_add: "object",
    parse_for_http_add: "json",
    parse_for_http_recall: "json",
    parse_for_http_write: "message",
    parse_for_import: "message",
}
python_entry_points = pytest.mark.parametrize("parse", [parse_for_recall, parse_for_add])


def can_receive(parse: Parser, messages: object) -> bool:
    """Return True if a form can be sent to an entry point."""
    if ENTRY_POINTS[parse] == "object":
        return True
    try:
        json.dumps(messages)
    except TypeError:
        return False
    fields = {"role", "content"}
    return ENTRY_POINTS[parse] == "json" or (
        isinstance(messages, list)
        and all(isinstance(item, dict) and item.keys() == fields for item in messages)
    )


PICTURE = Image(Picture.new("RGB", (1, 1)))
IDS: dict[str, Any] = {"message_id": "m", "user_id": "u", "session_id": "s", "agent_id": "g"}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "https://host/x"}}


def user(text: str, speaker: str | None = None, content_type: str = "text") -> Parsed:
    return [("user", text, speaker, content_type)]


FORMS: dict[str, tuple[object, Parsed]] = {
    "text": ("a", user("a")),
    "list of texts": (["a", "b"], user("a") + user("b")),
    "tuple": (("a",), user("a")),
    "dict": ({"content": "a"}, user("a")),
    "dict with a name": ([{"role": "user", "content": "a", "name": "Ann"}], user("a", "Ann")),
    **{
        f"role {name}": ([{"role": name, "content": "a"}], [(role, "a", None, "text")])
        for name, role in {
            **{role.value: role.value for role in Role},
            "developer": "system",
            "human": "user",
            "ai": "assistant",
            "function": "tool",
        }.items()
    },
    "role enum": ({"role": Role.OTHER, "content": "a"}, [("other", "a", None, "text")]),
    "parts": (
        [{"role": "human", "content": [{"type": "text", "text": "a"}, "b", IMAGE_PART]}],
        user("a\nb\n[image]"),
    ),
    "single part": ([{"role": "user", "content": {"type": "text", "text": "a"}}], user("a")),
    "image alone": ([{"role": "user", "content": [IMAGE_PART]}], user("[image]", None, "image")),
    "image with caption": (
        {"content": [{**IMAGE_PART, "caption": "a cat"}]},
        user("a cat", None, "image"),
    ),
    "audio": ({"content": [{"type": "input_audio"}]}, user("[audio]", None, "audio")),
    "file": ({"content": [{"type": "file"}]}, user("[file]", None, "file")),
    "wordless parts": (
        {"content": [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "a"}]},
        user("a"),
    ),
    "wordless messages": ([{"role": "assistant", "content": None}, "a"], user("a")),
    "NewMessage": (
        NewMessage(role=Role.OTHER, content="a", speaker="Ann"),
        [("other", "a", "Ann", "text")],
    ),
    "Message": (
        [Message(role=Role.USER, content="a", ts=TIME, create_time=TIME, sequence_no=1, **IDS)],
        user("a"),
    ),
    "ConversationMessage": (ConversationMessage(Role.TOOL, "a"), [("tool", "a", None, "text")]),
    "AutoGen user": (UserMessage(content="a", source="ann"), user("a", "ann")),
    "AutoGen default source": (UserMessage(content="a", source="user"), user("a")),
    "AutoGen image": (
        UserMessage(content=[PICTURE], source="user"),
        user("[image]", None, "image"),
    ),
    "AutoGen assistant": (
        [
            AssistantMessage(content=[FunctionCall("1", "{}", "tool")], source="assistant"),
            AssistantMessage(content="a", source="planner"),
        ],
        [("assistant", "a", "planner", "text")],
    ),
    "AutoGen system": (SystemMessage(content="a"), [("system", "a", None, "text")]),
    "AutoGen tool results": (
        FunctionExecutionResultMessage(
            content=[FunctionExecutionResult(content=text, name="t", call_id=text) for text in "ab"]
        ),
        [("tool", "a\nb", None, "text")],
    ),
    "AutoGen chat user": (TextMessage(content="a", source="user"), user("a")),
    "AutoGen chat user proxy": (
        TextMessage(content="a", source="user_proxy"),
        user("a", "user_proxy"),
    ),
    "AutoGen chat agent": (
        TextMessage(content="a", source="planner"),
        [("assistant", "a", "planner", "text")],
    ),
    "AutoGen multimodal": (
        MultiModalMessage(content=["a", PICTURE], source="user"),
        user("a\n[image]"),
    ),
    "LangChain human": (LangChainMessage("a", "human", name="Ann"), user("a", "Ann")),
    "LangChain ai": (
        LangChainMessage(["a", {"type": "text", "text": "b"}, {"type": "tool_use"}], "ai"),
        [("assistant", "a\nb", None, "text")],
    ),
    "LangChain system": (LangChainMessage("a", "system"), [("system", "a", None, "text")]),
    "LangChain tool": (
        LangChainMessage("a", "tool", tool_call_id="c"),
        [("tool", "a", None, "text")],
    ),
    "LangChain function": (
        LangChainMessage("a", "function", name="f"),
        [("tool", "a", "f", "text")],
    ),
    "Agent Framework": (
        AgentFrameworkMessage(
            SimpleNamespace(value="user"),
            [AgentFrameworkContent("text", "a"), AgentFrameworkContent("text_reasoning", "…")],
            author_name="Ann",
        ),
        user("a", "Ann"),
    ),
    "Agent Framework image": (
        AgentFrameworkMessage(
            "user", [AgentFrameworkContent("uri", media_type="image/png", uri="https://host/x")]
        ),
        user("[image]", None, "image"),
    ),
    "Agent Framework tool result": (
        AgentFrameworkMessage("tool", [AgentFrameworkContent("function_result", result="a")]),
        [("tool", "a", None, "text")],
    ),
    "Responses API message": (
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        [("assistant", "a", None, "text")],
    ),
    "Responses API tool output": (
        {"type": "function_call_output", "call_id": "1", "output": "a"},
        [("tool", "a", None, "text")],
    ),
    "Responses API tool output of parts": (
        {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "a"}]},
        [("tool", "a", None, "text")],
    ),
    "Agent Framework text": (SimpleNamespace(role="user", text="a"), user("a")),
    "OpenAI client": (
        SimpleNamespace(role="assistant", content="a", tool_calls=None),
        [("assistant", "a", None, "text")],
    ),
}


@pytest.mark.parametrize(
    ("parse", "form"),
    [
        (parse, form)
        for parse in ENTRY_POINTS
        for form in FORMS
        if can_receive(parse, FORMS[form][0])
    ],
)
def test_every_form_is_accepted(form: str, parse: Parser) -> None:
    messages, expected = FORMS[form]
    parsed = parse(messages)
    assert [(m.role.value, m.text, m.speaker, m.content_type) for m in parsed] == expected


@python_entry_points
def test_ids_times_and_tool_calls_are_kept(parse: Parser) -> None:
    calls = [{"name": "f", "args": {}, "id": "c"}]
    chat = TextMessage(content="a", source="user", created_at=TIME, metadata={"k": "v"})
    parsed = parse(
        [
            {"content": "a", "id": "1", "timestamp": TIME.isoformat(), "parent_message_id": "0"},
            LangChainMessage("a", "ai", id="2", tool_calls=calls),
            AgentFrameworkMessage("user", [AgentFrameworkContent("text", "a")], message_id="3"),
            {"content": "a", "message_id": "4", "id": "5", "created_at": TIME},
            chat,
        ]
    )
    assert [m.message_id for m in parsed] == ["1", "2", "3", "4", chat.id]
    assert [m.ts for m in parsed] == [TIME, None, None, TIME, TIME]
    assert parsed[0].parent_message_id == "0"
    assert parsed[1].metadata == {"tool_calls": calls}
    assert parsed[4].metadata == {"k": "v"}


@pytest.mark.parametrize(
    "parse", [parse for parse, forms in ENTRY_POINTS.items() if forms != "message"]
)
def test_ids_and_times_of_json_are_kept(parse: Parser) -> None:
    fields = {"id": "1", "timestamp": TIME.isoformat(), "parent_message_id": "0"}
    tool = {"role": "function", "name": "f", "content": "a", "tool_call_id": "c", "color": "red"}
    first, second = parse([{"content": "a", **fields}, tool])
    assert (first.message_id, first.ts, first.parent_message_id) == ("1", TIME, "0")
    assert (second.role, second.speaker, second.metadata) == (Role.TOOL, "f", {"tool_call_id": "c"})


@pytest.mark.parametrize("parse", [parse_for_http_write, parse_for_import])
def test_stored_message_needs_text_and_known_role(parse: Parser) -> None:
    wordless: tuple[object, ...] = ([], {}, [{"type": "thinking"}])
    for content in wordless:
        with pytest.raises(InvalidArgument, match="content has no text"):
            parse([{"role": "user", "content": content}])
    with pytest.raises(InvalidArgument, match="role 'robot' is not known"):
        parse([{"role": "robot", "content": "a"}])
    with pytest.raises(InvalidArgument, match="part 7"):
        parse([{"role": "user", "content": [7]}])


def test_items_of_the_responses_api_without_text_are_left_out() -> None:
    items: list[object] = [
        {"role": "user", "content": "a"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "name": "recall", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": ""},
        {"type": "message", "role": "assistant", "id": "__fake_id__", "content": "b"},
    ]
    first, last = parse_messages(items)
    assert (first.text, last.text) == ("a", "b")
    assert last.message_id is None  # the SDK gives many items this id


def test_no_message_is_refused() -> None:
    for parse in (parse_for_recall, parse_for_add, parse_for_http_add):
        with pytest.raises(InvalidArgument, match="NoneType is not a message"):
            parse(None)


INVALID_MESSAGES: tuple[tuple[object, str], ...] = (
    ([], "empty"),
    ("  ", "empty"),
    ([None], "NoneType is not a message"),
    (7, "int is not a message"),
    ([7], "int is not a message"),
    (b"a", "bytes is not a message"),
    ([object()], "object is not a message"),
    ([{"role": "robot", "content": "x"}], "role 'robot' is not known"),
    ([{"role": None, "content": "x"}], "role None is not known"),
    ([{"role": "user", "content": 7}], "int is not text"),
    ([{"role": "user", "content": [7]}], "part 7"),
    ([{"role": "user", "content": "x", "message_id": [1]}], "message_id"),
    ([{"role": "user", "content": "x", "name": 5}], "name 5 is not a text"),
    ([{"role": "user", "content": "a\0"}], "NUL"),
    ([{"role": "user", "content": "x", "ts": "soon"}], "not a time"),
    ([{"role": "user", "content": "x", "metadata": [1]}], "not a JSON object"),
)


@pytest.mark.parametrize(
    ("parse", "messages", "reason"),
    [
        (parse, messages, reason)
        for parse, forms in ENTRY_POINTS.items()
        for messages, reason in INVALID_MESSAGES
        if forms != "message" and can_receive(parse, messages)
    ],
)
def test_other_values_are_refused_with_a_hint(messages: object, reason: str, parse: Parser) -> None:
    with pytest.raises(InvalidArgument, match=reason) as refusal:
        parse(messages)
    assert "role" not in reason or "developer" in str(refusal.value)


def test_new_messages_share_metadata() -> None:
    message = {"content": "PIN 4711", "metadata": {"pin": ["4711"], "n": 1}}
    (new,) = parse_new_messages(message, {"topic": "bank", "n": 0})
    assert new.metadata == {"topic": "bank", "pin": ["4711"], "n": 1}


def test_new_messages_are_limited_in_number() -> None:
    with pytest.raises(InvalidArgument, match="10001 messages exceed"):
        parse_new_messages(["a"] * 10_001)
