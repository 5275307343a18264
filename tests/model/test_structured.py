"""Structured answers: lenient parsing, strict validation, one retry."""

from functools import partial

import pytest
from autogen_core.models import AssistantMessage, LLMMessage, UserMessage
from pydantic import BaseModel

from memrecall.errors import ModelFailed
from memrecall.model.structured import Structured, ask_json
from memrecall.testing import ScriptedClient, Step, call, fail, say, silence

from ..cases import check_each_async

MESSAGES: list[LLMMessage] = [
    UserMessage(content="Is recall needed? Answer in JSON.", source="user")
]


class Verdict(BaseModel):
    needed: bool
    words: list[str] = []


async def ask_for_verdict(*steps: Step) -> tuple[Structured[Verdict], ScriptedClient]:
    client = ScriptedClient(steps)
    return await ask_json(partial(client.create, json_output=True), MESSAGES, Verdict), client


async def test_plain_json_is_validated() -> None:
    answer, client = await ask_for_verdict(say('{"needed": true, "words": ["茶"]}'))
    assert answer == Structured(Verdict(needed=True, words=["茶"]))
    assert client.requests[0].json_output is True


FORMS = (
    ('{"needed": "false"}', False),
    ('{"needed": "True"}', True),
    ("{'needed': False}", False),
    ('```json\n{"needed": true}\n```', True),
    ('"{\\"needed\\": false}"', False),
    ('[{"needed": true}]', True),
)


async def test_repairable_json_is_accepted() -> None:
    async def check(case: tuple[str, bool]) -> None:
        text, needed = case
        answer, _ = await ask_for_verdict(say(text))
        assert answer.value is not None
        assert answer.value.needed is needed

    await check_each_async(FORMS, check)


@pytest.mark.parametrize("text", ['{"needed": "maybe"}', '{"needed": null}', "{}", "yes", "5"])
async def test_invalid_values_are_rejected(text: str) -> None:
    answer, client = await ask_for_verdict(say(text), say('{"needed": false}'))
    assert answer.value == Verdict(needed=False)
    assert len(client.requests) == 2
    complaint = client.requests[1].messages[-2:]
    assert complaint[0] == AssistantMessage(content=text, source="assistant")
    assert "cannot be used" in str(complaint[1].content)


@pytest.mark.parametrize(
    "text",
    [
        '{"needed": true, "words": ["te',
        '{"needed": true, "words": ["tea"',
        '{"needed": true, "words": [',
        '[{"needed": true}, {"needed": fal',
        '```json\n{"needed": true',
    ],
)
async def test_truncated_json_is_requested_again(text: str) -> None:
    answer, client = await ask_for_verdict(say(text), say('{"needed": false}'))
    assert answer.value == Verdict(needed=False)
    assert "cut off" in str(client.requests[1].messages[-1].content)


@pytest.mark.parametrize("first", [silence(), call("search")])
async def test_unusable_answers_end_with_a_problem(first: Step) -> None:
    answer, client = await ask_for_verdict(first, say('{"needed": "perhaps"}'))
    assert answer.value is None
    assert len(client.requests) == 2
    assert answer.problem.startswith("needed: Input should be a valid boolean")
    assert len(client.requests[1].messages) == 2
    assert client.remaining == 0


async def test_model_failure_is_raised() -> None:
    with pytest.raises(ModelFailed):
        await ask_for_verdict(fail("timeout"))
