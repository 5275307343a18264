"""Properties of every chat turn, for any behaviour of the model."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.chat import Final, SingleChat, ToolResult
from memrecall.chat.visible_text import AnswerReasoning, VisibleText
from memrecall.testing import ScriptedClient, call, calls, fail, say

from ..libraries import open_library
from .chat_helpers import (
    DSML,
    LIN,
    LISBON,
    QUESTION_EN,
    TurnEvents,
    collect_turn,
    make_options,
    shown_text,
    stored_messages,
)

PIECES = st.sampled_from(["clean words. ", DSML, "\n", " ", "<think>x</think>", "`code`", "好"])
STEPS = st.one_of(
    st.builds(lambda parts: say("".join(parts)), st.lists(PIECES, max_size=4)),
    st.builds(call, st.sampled_from(["recall_memory", "is_mentioned", "nonsense"])),
    st.just(call("recall_memory", query="offsite")),
    st.just(calls(call("recall_memory", query="a"), call("recall_memory", query="b"))),
    st.just(fail("timeout")),
    st.just(fail("no_tools")),
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=8, max_size=8), st.integers(0, 3))
def test_turn_ends_well_for_any_model_output(steps: list[Any], cap: int) -> None:
    """Check one end, one result per call, no leaked text, the cap, and the streamed text."""

    async def run() -> tuple[TurnEvents, int]:
        async with open_library(scope="lin", messages=[LISBON]) as library:
            client = ScriptedClient(steps)
            chat = SingleChat(library, LIN, client, options=make_options(recalls=cap))
            turn = await collect_turn(chat.stream(QUESTION_EN))
            return turn, len(await stored_messages(library, LIN))

    turn, stored = asyncio.run(run())
    assert "DSML" not in "".join(turn.deltas)
    run_by_model = [r for r in turn.events if isinstance(r, ToolResult) and not r.is_error]
    assert len(run_by_model) <= max(cap, 1)
    assert stored == (2 if isinstance(turn.end, Final) else 1)
    if isinstance(turn.end, Final):
        assert turn.end.text.strip() == turn.end.text != ""


@given(st.lists(PIECES, max_size=6), st.data())
def test_visible_text_is_independent_of_chunks(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    reasoning = AnswerReasoning(ScriptedClient([]), "strip")  # learns nothing from the first
    whole = VisibleText(["recall_memory"], "m", reasoning)
    expected = shown_text([*whole.feed(text), *whole.end()])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = VisibleText(["recall_memory"], "m", reasoning)
    bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
    events = [event for start, end in bounds for event in pieces.feed(text[start:end])]
    assert shown_text([*events, *pieces.end()]) == expected == whole.text == pieces.text
    assert whole.leaks == pieces.leaks
