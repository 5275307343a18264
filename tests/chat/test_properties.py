"""What holds of every turn, whatever a model does."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.chat import Final, SingleChat, ToolResult
from memrecall.chat.visible_text import VisibleText
from memrecall.testing import (
    ScriptedClient,
    call,
    calls,
    fail,
    open_library,
    say,
)

from .stage import (
    ASKED_EN,
    DSML,
    LIN,
    LISBON,
    Played,
    patient,
    play,
    stored,
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
    """One end, each call one result, no leaked text, the cap kept, the pieces are the text."""

    async def run() -> tuple[Played, int]:
        async with open_library(scope="lin", messages=[LISBON]) as library:
            client = ScriptedClient(steps)
            chat = SingleChat(library, LIN, client, options=patient(recalls=cap))
            played = await play(chat.stream(ASKED_EN))
            return played, len(await stored(library, LIN))

    played, kept = asyncio.run(run())
    assert "DSML" not in "".join(played.deltas)
    run_by_model = [r for r in played.events if isinstance(r, ToolResult) and not r.is_error]
    assert len(run_by_model) <= max(cap, 1)
    assert kept == (2 if isinstance(played.end, Final) else 1)
    if isinstance(played.end, Final):
        assert played.end.text.strip() == played.end.text != ""


@given(st.lists(PIECES, max_size=6), st.data())
def test_visible_text_is_independent_of_chunks(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    whole = VisibleText(["recall_memory"], "m")
    shown = whole.feed(text) + whole.end()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = VisibleText(["recall_memory"], "m")
    bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
    streamed = "".join(pieces.feed(text[start:end]) for start, end in bounds) + pieces.end()
    assert streamed == shown == whole.text == pieces.text
    assert whole.leaks == pieces.leaks
