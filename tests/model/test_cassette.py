"""Cassettes: recorded calls replay, and mismatches are named."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from memrecall.errors import CassetteMismatch, InvalidArgument, ModelFailed
from memrecall.model import RecordingClient, ReplayClient
from memrecall.testing import ScriptedClient, Step, call, calls, fail, say, think, wait

from ..cases import check_each, check_each_async

Tools = tuple[FunctionTool, FunctionTool]
SYSTEM = SystemMessage(content="Recall.")


def user_message(text: str, source: str = "user") -> UserMessage:
    return UserMessage(content=text, source=source)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


async def record(path: Path, *steps: Step, **arguments: Any) -> list[CreateResult]:
    """Record one call for each step, each with one more message."""
    client = RecordingClient(ScriptedClient(steps, model="m1", tokens=(7, 3)), path)
    return [await client.create(history(i), **arguments) for i in range(len(steps))]


def history(extra: int) -> list[LLMMessage]:
    return [SYSTEM, *(user_message(f"问题 {i}") for i in range(extra + 1))]


def read_text(path: Path) -> str:
    return path.read_text("utf-8")


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_text(path).splitlines()]


async def test_conversation_replays(path: Path, tools: Tools) -> None:
    steps = [
        think("想一想", call("search", query="茶")),
        calls(call("search", query="a"), call("handoff", summary="b")),
        say("你喜欢绿茶"),
    ]
    recorded = await record(path, *steps, tools=tools, extra_create_args={"temperature": 0})
    client = ReplayClient(path)
    options = {"temperature": 0}
    for i, result in enumerate(recorded):
        replayed = await client.create(history(i), tools=tools, extra_create_args=options)
        assert replayed == result
    client.assert_exhausted()
    assert client.model == "m1"
    assert client.model_info["family"] == "scripted"
    assert client.actual_usage().prompt_tokens == 21


async def test_cassette_is_readable_json_lines(path: Path, tools: Tools) -> None:
    await record(path, say("一"), say("二"), tools=tools)
    first, second = read_lines(path)  # one line per call
    assert (first["header"]["cassette"], first["header"]["model"]) == (1, "m1")
    assert "header" not in second
    assert first["call"] == 1
    assert first["messages"] == [
        {"content": "Recall.", "type": "SystemMessage"},
        {"content": "问题 0", "type": "UserMessage"},
    ]
    assert first["tools"] == ["search", "handoff"]
    # Each line has only the new messages.
    assert second["kept"] == 2
    assert second["messages"] == [{"content": "问题 1", "type": "UserMessage"}]
    assert second["response"]["content"] == "二"
    assert "\\u" not in read_text(path)


async def test_changed_histories_and_tool_results_replay(path: Path) -> None:
    def turns(hint: str) -> list[LLMMessage]:
        function_call = FunctionCall("call_1", "{}", "search")
        result = FunctionExecutionResult(content="无", name="search", call_id="call_1")
        return [
            SYSTEM,
            AssistantMessage(content=[function_call], thought="t", source="a"),
            FunctionExecutionResultMessage(content=[result]),
            user_message(hint),
        ]

    client = RecordingClient(ScriptedClient([say("1"), say("2"), say("3")]), path)
    for messages in (turns("2 left"), turns("1 left"), [SYSTEM]):
        await client.create(messages)
    assert [line["kept"] for line in read_lines(path)] == [0, 3, 1]
    replay_client = ReplayClient(path)
    for messages in (turns("2 left"), turns("1 left"), [SYSTEM]):
        await replay_client.create(messages)
    replay_client.assert_exhausted()


async def collect(client: RecordingClient | ReplayClient, **arguments: Any) -> list[object]:
    return [part async for part in client.create_stream(history(0), **arguments)]


async def test_stream_replays_in_chunks(path: Path) -> None:
    recorded = await collect(RecordingClient(ScriptedClient([think("t", say("你 好 吗"))]), path))
    assert len(recorded) == 4
    with pytest.raises(CassetteMismatch, match="differs in stream: it was True, now False"):
        await ReplayClient(path).create(history(0))
    assert await collect(ReplayClient(path)) == recorded


async def test_failures_replay(path: Path) -> None:
    recorder = RecordingClient(ScriptedClient([fail("quota", "空了"), fail("overflow")]), path)
    client_of_failures = recorder
    for _ in range(2):
        with pytest.raises(ModelFailed):
            await client_of_failures.create(history(0))
    client = ReplayClient(path)
    for kind in ("quota", "overflow"):
        with pytest.raises(ModelFailed) as failure:
            await client.create(history(0))
        assert failure.value.kind == kind
    client.assert_exhausted()


@pytest.mark.concurrent
async def test_cancelled_call_is_recorded_as_timeout(path: Path) -> None:
    steps = [wait(30, say("late")), say("a b"), say("then")]
    recorder = RecordingClient(ScriptedClient(steps), path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await recorder.create(history(0))
    async with aclosing(recorder.create_stream(history(1))) as parts:
        assert await anext(parts) == "a"
    await recorder.create(history(2))
    client = ReplayClient(path)
    with pytest.raises(ModelFailed, match="given up") as failure:
        await client.create(history(0))
    assert failure.value.kind == "timeout"
    with pytest.raises(ModelFailed, match="given up"):
        await collect_messages(client, history(1))
    assert (await client.create(history(2))).content == "then"


async def collect_messages(client: ReplayClient, messages: list[LLMMessage]) -> list[object]:
    return [part async for part in client.create_stream(messages)]


class Verdict(BaseModel):
    needed: bool


@pytest.fixture
async def recorded(path: Path, tools: Tools) -> Path:
    await record(path, say("一"), tools=tools, tool_choice="required", json_output=True)
    return path


DIFFERENCES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"messages": [SYSTEM, user_message("问题 9")]}, "differs in messages: message 2 was …"),
    ({"messages": [SYSTEM]}, 'message 2 was …{"content":"问题 0'),
    ({"messages": [*history(0), user_message("more")]}, 'message 3 was …nothing…, now …{"content"'),
    ({"tools": ()}, "differs in tools: it was ['search', 'handoff'], now []"),
    ({"tool_choice": "auto"}, "differs in tool_choice: it was required, now auto"),
    ({"json_output": None}, "differs in json_output: it was true, now none"),
    ({"json_output": Verdict}, "differs in json_output: it was true, now Verdict"),
    ({"extra_create_args": {"seed": 1}}, "differs in options: it was {}, now {'seed': 1}"),
)


async def test_mismatch_names_the_differing_part(recorded: Path, tools: Tools) -> None:
    async def check(case: tuple[dict[str, Any], str]) -> None:
        change, expected = case
        request: dict[str, Any] = {"messages": history(0), "tools": tools, "json_output": True}
        request |= {"tool_choice": "required", **change}
        client = ReplayClient(recorded)
        with pytest.raises(CassetteMismatch) as failure:
            await client.create(**request)
        assert str(failure.value).startswith(f"call 1 of {recorded} ")
        assert expected in str(failure.value)
        assert failure.value.code == "FAILED_PRECONDITION"
        # A framework may have caught the error: it comes again.
        with pytest.raises(CassetteMismatch) as again:
            await client.create(history(0))
        with pytest.raises(CassetteMismatch) as at_the_end:
            client.assert_exhausted()
        assert failure.value is again.value is at_the_end.value

    await check_each_async(DIFFERENCES, check)


async def test_tool_choice_is_recorded_by_name(path: Path, tools: Tools) -> None:
    await record(path, call("handoff"), tools=tools, tool_choice=tools[1])
    assert read_lines(path)[0]["digests"]["tool_choice"] == "handoff"
    with pytest.raises(CassetteMismatch, match="was handoff, now search"):
        await ReplayClient(path).create(history(0), tools=tools, tool_choice=tools[0])


async def test_message_source_is_ignored(path: Path) -> None:
    await record(path, say("一"))
    messages: list[LLMMessage] = [SYSTEM, user_message("问题 0", source="another_agent")]
    assert (await ReplayClient(path).create(messages)).content == "一"


async def test_extra_and_missing_calls_are_mismatches(path: Path) -> None:
    await record(path, say("一"), say("二"), say("三"))
    client = ReplayClient(path)
    with pytest.raises(CassetteMismatch, match="calls 1 to 3 were never made"):
        client.assert_exhausted()
    for i in range(3):
        await client.create(history(i))
    with pytest.raises(CassetteMismatch, match=r"call 4 .* has 3; call 3 .* differs in messages"):
        await client.create(history(3))


async def test_requests_replay_in_any_order_and_equal_ones_in_recorded_order(path: Path) -> None:
    recorder = RecordingClient(ScriptedClient([say("a1"), say("b"), say("a2")]), path)
    for number in (0, 1, 0):
        await recorder.create(history(number))
    client = ReplayClient(path)
    answers = [(await client.create(history(number))).content for number in (1, 0, 0)]
    assert answers == ["b", "a1", "a2"]
    client.assert_exhausted()
    client = ReplayClient(path)
    await client.create(history(1))
    with pytest.raises(CassetteMismatch, match="calls 1, 3 were never made"):
        client.assert_exhausted()
    with pytest.raises(CassetteMismatch, match=r"call 2 was made, but .* has 3 as often"):
        await client.create(history(1))


async def test_miss_names_the_nearest_recording(path: Path) -> None:
    await record(path, say("一"), say("二"), say("三"))
    changed = [*history(1), user_message("问题 X")]
    with pytest.raises(CassetteMismatch, match=r"call 3 .* differs in messages: message 4"):
        await ReplayClient(path).create(changed)
    client = ReplayClient(path)
    await client.create(history(2))
    with pytest.raises(CassetteMismatch, match=r"call 2 .* differs in options"):
        await client.create(history(1), extra_create_args={"seed": 1})


async def test_replay_honours_cancelled_token(path: Path) -> None:
    await record(path, say("一"))
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ReplayClient(path).create(history(0), cancellation_token=token)


async def test_secrets_are_not_recorded(path: Path) -> None:
    options = {
        "api_key": "SECRET1",
        "extra_headers": {"Authorization": "Bearer SECRET2"},
        "extra_body": {"access_token": "SECRET3", "thinking": {"type": "off"}, "x": "sk-SECRET4"},
        "headers": ["SECRET5"],
        "metadata": ["Bearer SECRET6", "kept"],
        "max_tokens": 5,
        "response_format": Verdict,
    }
    await record(path, say("一"), extra_create_args=options)
    assert "SECRET" not in read_text(path)
    assert read_lines(path)[0]["options"] == {
        "extra_body": {"thinking": {"type": "off"}},
        "metadata": ["kept"],
        "max_tokens": 5,
        "response_format": "Verdict",
    }
    await ReplayClient(path).create(history(0), extra_create_args={**options, "api_key": "other"})


async def test_existing_cassette_needs_overwrite(path: Path) -> None:
    await record(path, say("一"))
    before = read_text(path)
    with pytest.raises(InvalidArgument, match="exists already"):
        RecordingClient(ScriptedClient([]), path)
    assert read_text(path) == before
    RecordingClient(ScriptedClient([]), path, overwrite=True)
    ReplayClient(path).assert_exhausted()
    with pytest.raises(InvalidArgument, match="cannot be written"):
        RecordingClient(ScriptedClient([]), path.parent / "missing" / "x.jsonl")


HEADER = (
    '"header": {"cassette": 1, "model": "m", "model_info": {"vision": false, '
    '"function_calling": true, "json_output": true, "family": "x", "structured_output": false, '
    '"multiple_system_messages": true}}'
)
CALL = (
    '{"call": 1, "digests": {}, "kept": 0, "messages": [], "tools": [], "options": {}, '
    '"failure": {"kind": "quota", "message": ""}, ' + HEADER + "}\n"
)


BROKEN = (
    ("[1]\n", "line 1 is not a cassette line"),
    (CALL.replace('"cassette": 1', '"cassette": 7'), "cassette version 7"),
    (CALL + "{oops\n", "line 2 is not a cassette line"),
    ('{"call": 1}\n', "line 1 is not a cassette line: digests"),
    (CALL.replace('"failure"', '"other"'), "line 1 is not a cassette line"),
    (
        '{"call": 1, "digests": {}, "kept": 0, "messages": [], "tools": [], "options": {}}\n',
        "either a response or a failure",
    ),
    (CALL.replace('"call": 1', '"call": 2'), "has the calls [2]"),
    (CALL.replace(", " + HEADER, ""), "the first call has no header"),
)


def test_invalid_cassette_error_names_the_line(path: Path) -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        path.write_text(text, "utf-8")
        with pytest.raises(InvalidArgument) as failure:
            ReplayClient(path)
        assert expected in str(failure.value)

    check_each(BROKEN, check)


EDITS = (
    (1, "问题 0", "问题 9"),
    (2, "问题 1", "问题 9"),
    (1, '"options": {"seed": 1}', '"options": {"seed": 2}'),
    (2, '"kept": 2', '"kept": 1'),
    (1, '"content": "一"', '"content": "三"'),
    (1, '"prompt_tokens": ', '"prompt_tokens": 7'),
    (1, '"tools": ["', '"tools": ["my_'),
    (1, '"model": "', '"model": "my-'),
    (1, '"about": {', '"about": {"now": 1'),
)


async def test_edited_line_does_not_match_its_digest(path: Path, tools: Tools) -> None:
    await record(path, say("一"), say("二"), tools=tools, extra_create_args={"seed": 1})
    text = read_text(path)
    ReplayClient(path)

    def check(edit: tuple[int, str, str]) -> None:
        number, old, new = edit
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")
        with pytest.raises(CassetteMismatch, match=f"line {number} of .* was edited") as raised:
            ReplayClient(path)
        assert raised.value.details == {"call": number, "part": "line"}

    check_each(EDITS, check)


async def test_cassette_without_digests_of_lines_replays(path: Path) -> None:
    await record(path, say("一"))
    line = json.loads(read_text(path))
    del line["digests"]["line"]
    path.write_text(json.dumps(line), "utf-8")  # noqa: ASYNC240 -- nothing else runs
    assert (await ReplayClient(path).create(history(0))).content == "一"


async def test_about_is_recorded(path: Path) -> None:
    about = {"now": "2026-01-26T10:00:00Z"}
    recorder = RecordingClient(ScriptedClient([say("一")]), path, about=about)
    await recorder.create(history(0))
    assert ReplayClient(path).about == about


async def test_empty_cassette_replays(path: Path) -> None:
    RecordingClient(ScriptedClient([]), path)
    assert read_text(path) == ""
    ReplayClient(path).assert_exhausted()
    with pytest.raises(CassetteMismatch, match=r"call 1 was made, but .* has 0$"):
        await ReplayClient(path).create(history(0))


def test_missing_cassette_is_an_error(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        ReplayClient(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.text(st.characters()), min_size=1, max_size=4), st.text(st.characters()))
def test_any_text_round_trips(path: Path, texts: list[str], answer: str) -> None:
    async def run() -> None:
        messages = [user_message(text) for text in texts]
        recorder = RecordingClient(ScriptedClient([say(answer)]), path, overwrite=True)
        await recorder.create(messages)
        assert (await ReplayClient(path).create(messages)).content == answer

    asyncio.run(run())
