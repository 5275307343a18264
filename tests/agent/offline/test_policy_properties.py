"""Properties of the recall policy: it ends in a valid handoff for any tool results."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from memrecall.agent.tools.models import HandoffInput
from memrecall.messages import ConversationMessage
from memrecall.types import Role
from tests.agent.offline.simulation import (
    expansion,
    failure,
    hit,
    search_result,
    simulate,
    situation,
)

_TEXT = st.text(max_size=40) | st.sampled_from(
    ["上次方案", "那个东西", "as before", "what did you say yesterday?", "我喜欢什么", "", "继续"]
)
_MESSAGE_KEY, _MEMORY_KEY = st.sampled_from("abcdef"), st.sampled_from("ghij")
_TIME = st.sampled_from(["2026-04-01T10:00:00+00:00", "2026-04-01", "x"])
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "score": st.floats(0, 1),
    "created_at": _TIME,
    "speaker": st.none() | _TEXT,
    "role": st.sampled_from(["user", "assistant", "other", None]),
    "probability": st.none() | st.floats(0, 1),
    "valid_to": st.none() | _TIME,
}
_HIT = st.builds(hit, _MESSAGE_KEY, _TEXT, kind=st.just("message"), **_FIELDS) | st.builds(
    hit,
    _MEMORY_KEY,
    _TEXT,
    kind=st.just("memory"),
    stated_by=st.lists(_MESSAGE_KEY, max_size=2),
    **_FIELDS,
)
_RESULT: st.SearchStrategy[BaseModel] = st.one_of(
    st.builds(
        lambda hits, answered: search_result(*hits, answered=answered),
        st.lists(_HIT, max_size=10),
        st.none() | st.floats(0, 1),
    ),
    st.sampled_from(
        ["storage", "timeout", "embedder", "refused", "no_permission", "repeated", "internal"]
    ).map(failure),
)
_MESSAGE = st.builds(ConversationMessage, st.sampled_from(Role), _TEXT)


@given(
    st.lists(_MESSAGE, min_size=1, max_size=4),
    st.lists(_RESULT, min_size=30, max_size=30),
    st.booleans(),
)
@settings(max_examples=40)
def test_every_recall_ends_in_a_valid_handoff(
    messages: list[ConversationMessage], outputs: list[BaseModel], older: bool
) -> None:
    results = iter(outputs)

    def tool(name: str, arguments: dict[str, Any]) -> BaseModel:
        return expansion(approved=False) if name == "expand_context_window" else next(results)

    recall = simulate(situation(*messages, older=older), tool)
    handoff = HandoffInput.model_validate(recall.handoff)
    keys = handoff.relevant_memory_keys
    assert set(keys) <= set("abcdefghij")
    assert len(set(keys)) == len(keys) <= 4
    # A refused window, a search, one by words, one with the lines before it, the handoff.
    assert len(recall.calls) <= 5
