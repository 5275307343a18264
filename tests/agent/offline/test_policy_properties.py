"""Properties of the recall policy: it ends in a valid handoff for any tool answers."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.agent.tools.models import HandoffInput, SearchMemoriesInput
from memrecall.model.prompts import RuleCall
from tests.agent.offline.simulation import briefing, simulate

_TEXT = st.text(max_size=40) | st.sampled_from(
    ["上次方案", "那个东西", "as before", "what did you say yesterday?", "我喜欢什么", "", "继续"]
)
_KEY = st.sampled_from("abcdefghij")
_JUNK = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT
_HIT = st.fixed_dictionaries(
    {"memory_key": _KEY},
    optional={
        "content_preview": _TEXT,
        "summary": _JUNK,
        "relevance_score": _JUNK,
        "created_at": st.sampled_from(["2026-04-01T10:00:00+00:00", "2026-04-01", "x", None, 3]),
        "speaker": _JUNK,
        "role": st.sampled_from(["user", "assistant", "other", None]),
        "kind": st.sampled_from(["memory", "message"]),
    },
)
_NEAR = st.lists(_HIT | _JUNK, max_size=3)
_ANSWER = st.one_of(
    st.lists(_HIT, max_size=10).map(lambda hits: {"total_found": len(hits), "results": hits}),
    st.sampled_from(
        ["storage", "timeout", "embedder", "no_permission", "repeated", "not_found", "internal",
         "too_many_searches"]
    ).map(lambda code: {"success": False, "error": code, "message": code}),
    st.fixed_dictionaries(
        {"memory_key": _KEY}, optional={"content": _TEXT, "before": _NEAR, "after": _NEAR}
    ),
    st.sampled_from([{}, {"results": 3}, {"results": [None, "x"]}, {"approved": False}]),
)  # fmt: skip
_OUTPUT = _ANSWER.map(json.dumps) | st.sampled_from(["", "not json", '{"results": [{"memory_k'])
_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "text": _TEXT}
)


@given(
    st.lists(_MESSAGE, min_size=1, max_size=4),
    st.lists(_OUTPUT, min_size=30, max_size=30),
    st.booleans(),
)
@settings(max_examples=40)
def test_every_recall_ends_in_a_valid_handoff(
    messages: list[dict[str, Any]], outputs: list[str], older: bool
) -> None:
    answers = iter(outputs)
    calls: list[RuleCall] = []

    def tool(call: RuleCall) -> str:
        calls.append(call)
        output = next(answers)
        refusal = json.dumps({"approved": False})
        return refusal if call.name == "expand_context_window" else output

    recall = simulate(briefing(messages, older=older), tool)
    assert recall.handoff is not None
    handoff = HandoffInput.model_validate(recall.handoff)
    output_text = json.dumps(outputs)
    assert all(
        f'"{key}' in output_text or f'\\"{key}' in output_text
        for key in handoff.relevant_memory_keys
    )
    assert handoff.relevant_memory_keys or handoff.confidence <= 0.8
    for arguments in recall.searches:
        SearchMemoriesInput.model_validate(arguments)
