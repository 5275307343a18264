"""The offline client's JSON answers to the agent's prompts."""

import json

from autogen_core.models import SystemMessage, UserMessage

from memrecall.agent.offline import RULES, offline_client
from memrecall.model.prompts import load_prompt
from memrecall.types import Language


async def answer_offline(prompt: str, language: Language, content: str) -> dict[str, object]:
    client = offline_client()
    result = await client.create(
        [
            SystemMessage(content=load_prompt(prompt, language)),
            UserMessage(content=content, source="user"),
        ]
    )
    assert isinstance(result.content, str)
    answer = json.loads(result.content)
    assert isinstance(answer, dict)
    return answer


async def test_keywords_have_weights_and_types() -> None:
    content = json.dumps({"query": "上周配置的 db_pool_01 连接池", "max_keywords": 4})
    answer = await answer_offline("keywords", "zh", content)
    words = answer["keywords"]
    assert isinstance(words, list)
    kinds = {word["keyword"]: word["type"] for word in words}
    assert kinds["db_pool_01"] == "entity"
    assert kinds["上周"] == "time"
    assert len(words) <= 4
    assert "pool" in str(answer["expanded_query"])


async def test_empty_query_has_no_keywords() -> None:
    assert (await answer_offline("keywords", "en", "not json"))["keywords"] == []


async def test_needs_recall_reads_the_last_user_line() -> None:
    lines = [{"role": "user", "text": "do it like last time"}]
    content = "\n".join(json.dumps(line) for line in lines)
    assert await answer_offline("needs_recall", "en", content) == {"needed": True}
    assert await answer_offline("needs_recall", "en", '{"role": "user", "text": "2 + 2?"}') == {
        "needed": False
    }
    assert await answer_offline("needs_recall", "zh", "") == {"needed": False}


def test_every_prompt_of_the_agent_has_a_rule() -> None:
    assert set(RULES) == {"recall", "keywords", "needs_recall"}
