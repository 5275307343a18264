"""The JSON-RPC codec never raises, and all its replies are valid."""

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.server.rpc import Code

from .rpc_helpers import NO_REPLY, RESERVED, SPECIFIED, send_message

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
METHODS = st.sampled_from(["echo", "subtract", "crash", "unwritable", "missing", "rpc.x", "？"])
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2.0, None]),
        "method": METHODS | VALUES,
        "params": VALUES,
        "id": VALUES,
        "extra": VALUES,
    },
)


@given(st.binary(max_size=300))
async def test_any_bytes_get_a_valid_reply(data: bytes) -> None:
    await send_message(data)


@given(st.text(alphabet='{}[]":,0123456789eE+-.\\/ \tnulltruefalse"jsonrpcmethodid', max_size=200))
async def test_json_like_text_gets_a_valid_reply(text: str) -> None:
    await send_message(text)


@settings(max_examples=40)
@given(CALLS | st.lists(CALLS | VALUES, max_size=5) | VALUES)
async def test_any_json_gets_a_valid_reply(value: Any) -> None:
    reply = await send_message(json.dumps(value))
    if isinstance(value, list) and value and reply is not NO_REPLY and isinstance(reply, list):
        assert len(reply) <= len(value)


@settings(max_examples=40)
@given(st.lists(CALLS, min_size=1, max_size=3), st.data())
async def test_damaged_message_gets_a_valid_reply(calls: list[Any], data: st.DataObject) -> None:
    whole = json.dumps(calls, ensure_ascii=False).encode(errors="surrogatepass")
    at = data.draw(st.integers(0, len(whole)))
    await send_message(whole[:at])
    await send_message(whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + 1 :])


@given(st.integers() | st.text(), VALUES)
async def test_valid_call_is_answered_with_its_id(given_id: Any, value: Any) -> None:
    message = json.dumps({"jsonrpc": "2.0", "method": "echo", "params": [value], "id": given_id})
    reply = await send_message(message)
    if "result" in reply:
        assert reply["id"] == given_id
        assert reply["result"] == json.loads(message)["params"]
    else:  # NaN, infinities and lone surrogates are not JSON
        assert reply["error"]["code"] == Code.PARSE_ERROR


def test_own_codes_are_outside_the_reserved_range() -> None:
    own = [int(code) for code in Code if int(code) not in SPECIFIED]
    assert own
    assert not set(own) & set(RESERVED)


def test_every_error_code_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    codes = set(map(int, re.findall(r"-?\d+", text.partition("### Error codes")[2])))
    assert not set(Code) - codes
