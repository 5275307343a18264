"""Edge cases of JSON-RPC 2.0: inputs and the replies they require."""

import json
from typing import Any

from memrecall.server.rpc import RpcLimits, answer
from tests.cases import check_each_async

from .rpc_helpers import NO_REPLY, dispatch, error_code_and_id, send_message

PARSE, INVALID, UNKNOWN, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603


def call(**members: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": "echo", **members})


Row = tuple[str, bytes | str, int, Any]
SINGLE: list[Row] = [
    ("not JSON", '{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', PARSE, None),
    ("a truncated batch", '[{"jsonrpc": "2.0", "method": "sum", "id": "1"},', PARSE, None),
    ("nothing", "", PARSE, None),
    ("blank", " \t", PARSE, None),
    ("two values", "{} {}", PARSE, None),
    ("a single quote", "{'jsonrpc': '2.0'}", PARSE, None),
    ("a comment", "/* */ {}", PARSE, None),
    ("a byte order mark", b"\xef\xbb\xbf{}", PARSE, None),
    ("a byte order mark before an id", b'\xef\xbb\xbf{"id":7}', PARSE, 7),
    ("a lone surrogate beside an id", rb'{"id":"a","params":["\udead"]}', PARSE, "a"),
    ("a lone surrogate in UTF-8", b'{"id":7,"params":["\xed\xa0\x80"]}', PARSE, 7),
    ("a lone surrogate in the id", rb'{"id":"\ud83d"}', PARSE, None),
    ("a lone surrogate in a batch", rb'[{"id":"\ud83d"}]', PARSE, None),
    ("UTF-16", call(id=1).encode("utf-16"), PARSE, None),
    ("invalid UTF-8", b'{"jsonrpc": "2.0", "method": "\xff", "id": 1}', PARSE, None),
    ("half a character", '{"jsonrpc": "2.0", "method": "\\ud800", "id": 1}', PARSE, 1),
    ("NaN", '{"jsonrpc": "2.0", "method": "echo", "params": [NaN], "id": 1}', PARSE, None),
    (
        "Infinity",
        '{"jsonrpc": "2.0", "method": "echo", "params": [-Infinity], "id": 1}',
        PARSE,
        None,
    ),
    ("an infinite id", '{"jsonrpc": "2.0", "method": "echo", "id": 1e999}', INVALID, None),
    ("100,000 arrays in arrays", "[" * 100_000 + "]" * 100_000, PARSE, None),
    ("100,000 arrays that never end", "[" * 100_000, PARSE, None),
    ("65 levels", "[" * 65 + "]" * 65, PARSE, None),
    ("an integer of 5,000 digits", '{"id": ' + "1" * 5_000 + "}", PARSE, None),
    ("an empty batch", "[]", INVALID, None),
    ("a number", "1", INVALID, None),
    ("a string", '"x"', INVALID, None),
    ("null", "null", INVALID, None),
    ("an empty object", "{}", INVALID, None),
    ("no version", '{"method": "echo", "id": 1}', INVALID, 1),
    ("a version that is a number", '{"jsonrpc": 2.0, "method": "echo", "id": 1}', INVALID, 1),
    ("another version", '{"jsonrpc": "1.0", "method": "echo", "id": 1}', INVALID, 1),
    ("no method", '{"jsonrpc": "2.0", "id": 7}', INVALID, 7),
    ("a method that is no string", call(method=1, params="bar"), INVALID, None),
    ("the same with an id", call(method=1, id="x"), INVALID, "x"),
    ("params that are a string", call(params="bar", id=1), INVALID, 1),
    ("params that are null", call(params=None, id=1), INVALID, 1),
    ("params that are a number, and no id", call(params=3), INVALID, None),
    ("an id that is true", call(id=True), INVALID, None),
    ("an id that is an object", call(id={}), INVALID, None),
    ("an id that is an array", call(id=[1]), INVALID, None),
    ("an infinite number", call(id=1)[:-1] + ', "params": [{"a": -1e999}]}', INVALID, 1),
    ("an id twice", '{"jsonrpc": "2.0", "method": "echo", "id": 1, "id": 2}', INVALID, None),
    ("a method twice", call(id=1)[:-1] + ', "method": "echo"}', INVALID, 1),
    ("a key twice inside", call(id=1)[:-1] + ', "params": [{"a": 1, "a": 1}]}', INVALID, 1),
    ("an unknown method", call(method="foobar", id="1"), UNKNOWN, "1"),
    ("a method of the protocol itself", call(method="rpc.discover", id=1), UNKNOWN, 1),
    ("an empty method", call(method="", id=1), UNKNOWN, 1),
    ("parameters of other names", call(method="subtract", params={"a": 1}, id=1), PARAMS, 1),
    ("too few parameters", call(method="subtract", params=[1], id=1), PARAMS, 1),
    ("parameters of other types", call(method="subtract", params=["a", 1], id=1), PARAMS, 1),
    ("a bug in a method", call(method="crash", id=1), INTERNAL, 1),
    ("a result that cannot be written", call(method="unwritable", id=1), INTERNAL, 1),
    ("an error whose data cannot be written", call(method="missing", id=1), 1001, 1),
]


async def test_invalid_message_returns_its_error() -> None:
    async def check(row: Row) -> None:
        _, message, expected, expected_id = row
        assert error_code_and_id(await send_message(message)) == (expected, expected_id)

    await check_each_async(SINGLE, check, lambda row: row[0])


async def test_error_names_byte_order_mark_and_lone_surrogate() -> None:
    for message, words in (
        (b"\xef\xbb\xbf" + call(id=1).encode(), "begins with a byte order mark (BOM)"),
        (rb'{"id":1,"params":["a \udead b"]}', "lone surrogate '\\udead'"),
    ):
        assert words in (await send_message(message))["error"]["data"]["reason"]


NOTIFICATIONS = [
    call(params=[1, 2]),
    call(method="foobar"),
    call(method="subtract", params=["wrong"]),
    call(method="crash"),
    call(method="missing"),
    "[" + call() + "," + call(method="foobar") + "]",
]


async def test_notification_has_no_reply() -> None:
    async def check(message: str) -> None:
        assert await send_message(message) is NO_REPLY

    await check_each_async(NOTIFICATIONS, check)


IDS = [
    "null",
    "0",
    "-0",
    "1",
    "-1",
    "9007199254740993",
    "123456789012345678901234567890",
    "1.5",
    "1.0",
    "1.10",
    "1e5",
    "1E+5",
    "-0.0",
    "1e-400",
    '""',
    '"1"',
    '"ü 测试 😀"',
    '"\\u6d4b"',
    '"a\\"\\\\b"',
    '"null"',
]


async def test_id_is_returned_unchanged() -> None:
    async def check(source: str) -> None:
        message = call(params=[])[:-1] + f', "id": {source}}}'
        reply = await answer(message.encode(), dispatch, lambda _error: "r_1")
        assert reply is not None
        assert json.loads(reply)["id"] == json.loads(source)

    await check_each_async(IDS, check)


async def test_null_id_is_a_request() -> None:
    assert await send_message(call(params=[], id=None)) == {
        "jsonrpc": "2.0",
        "result": [],
        "id": None,
    }


async def test_call_without_params_is_valid() -> None:
    assert (await send_message(call(id=1)))["result"] is None


async def test_nesting_of_64_levels_is_accepted() -> None:
    nested = "[" * 63 + "]" * 63
    replies = await send_message(call(id=1)[:-1] + f', "params": {nested}}}')
    assert json.dumps(replies["result"]) == nested


class TestBatch:
    async def test_each_invalid_call_has_its_own_error(self) -> None:
        assert [error_code_and_id(item) for item in await send_message("[1]")] == [(INVALID, None)]
        assert [error_code_and_id(item) for item in await send_message("[1,2,3]")] == [
            (INVALID, None)
        ] * 3

    async def test_notifications_in_a_batch_have_no_reply(self) -> None:
        batch = [
            {"jsonrpc": "2.0", "method": "echo", "params": [1], "id": "1"},
            {"jsonrpc": "2.0", "method": "echo", "params": [7]},
            {"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": "2"},
            {"foo": "boo"},
            {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
            {"jsonrpc": "2.0", "method": "crash", "id": "9"},
        ]
        replies = await send_message(json.dumps(batch))
        by_id = {item["id"]: item for item in replies}

        assert len(replies) == 5
        assert (by_id["1"]["result"], by_id["2"]["result"]) == ([1], 19)
        assert [error_code_and_id(by_id[i])[0] for i in (None, "5", "9")] == [
            INVALID,
            UNKNOWN,
            INTERNAL,
        ]

    async def test_invalid_value_refuses_one_call(self) -> None:
        head = '{"jsonrpc": "2.0", "method": "echo", "id": '
        calls = ['1, "params": [{"a": 1, "a": 2}]}', '2, "params": [1e999]}', '3, "params": [4]}']
        first, second, third = await send_message(f"[{','.join(head + call for call in calls)}]")
        assert [error_code_and_id(reply) for reply in (first, second)] == [
            (INVALID, 1),
            (INVALID, 2),
        ]
        assert "same key twice" in first["error"]["data"]["reason"]
        assert "too large" in second["error"]["data"]["reason"]
        assert (third["id"], third["result"]) == (3, [4])

    async def test_calls_with_equal_ids_are_both_answered(self) -> None:
        replies = await send_message(
            "[" + call(params=[1], id=1) + "," + call(params=[2], id=1) + "]"
        )
        assert [(item["id"], item["result"]) for item in replies] == [(1, [1]), (1, [2])]

    async def test_nested_batch_is_an_invalid_call(self) -> None:
        assert [
            error_code_and_id(item) for item in await send_message("[[" + call(id=1) + "]]")
        ] == [(INVALID, None)]

    async def test_batch_size_is_limited(self) -> None:
        fifty = ",".join([call(params=[], id=1)] * 50)
        assert len(await send_message(f"[{fifty}]")) == 50
        assert error_code_and_id(await send_message(f"[{fifty},{fifty}]")) == (INVALID, None)
        assert error_code_and_id(await send_message("[" + "1," * 9_999 + "1]")) == (INVALID, None)


async def test_large_message_is_refused_before_parsing() -> None:
    message = call(params=["x" * 100], id=1)
    assert (await send_message(message, RpcLimits(bytes=len(message))))["id"] == 1
    assert error_code_and_id(await send_message(message, RpcLimits(bytes=len(message) - 1))) == (
        INVALID,
        None,
    )


async def test_bug_reveals_only_its_request_id() -> None:
    replies = await send_message(call(method="crash", id=1))
    assert replies["error"] == {
        "code": INTERNAL,
        "message": "Internal error",
        "data": {"request_id": "r_1"},
    }
