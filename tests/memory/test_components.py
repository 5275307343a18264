"""Components that an application passes as objects, without entry points or settings."""

from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory, Library
from memrecall.testing import ScriptedClient

from ..cases import check_each
from ..library import sample_plugin
from ..library.documented_graphs import documented_graphs
from ..library.sample_plugin import SampleEmbedder, SampleVectors
from .conftest import make_settings
from .word_extractor import WordExtractor


async def test_objects_replace_what_the_settings_name(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.search.index.external.MAX_ROWS_IN_MEMORY", 1)
    graphs = documented_graphs()
    before = sample_plugin.calls["products"]
    async with AsyncMemory(
        settings=make_settings(location),
        user_id="ann",
        embedder=SampleEmbedder(4),
        extractor=WordExtractor(),
        graph_db=graphs,
        vector_db=SampleVectors(),
    ) as memory:
        await memory.add("Ann works_at Acme. drink: tea.")
        await memory.add("drink2: tea with milk.")
        page = await memory.search("tea with milk")

        assert (await (await memory._open()).library.stats())["embedding_model"] == "sample-4"
        assert "milk" in page["results"][0]["memory"]
        assert sample_plugin.calls["products"] > before
        assert graphs.users["ann"].tables["relations"]
        relations = (await memory.graph("Ann"))["relations"]
        assert [relation["destination"] for relation in relations] == ["Acme"]


async def test_llm_is_asked_for_facts(location: str) -> None:
    client = ScriptedClient([])
    async with AsyncMemory(settings=make_settings(location), user_id="ann", llm=client) as memory:
        await memory.add("I live in Paris.")
    assert "I live in Paris." in str(client.requests[0])


def test_wrong_objects_are_rejected(location: str) -> None:
    embedder: Any = SampleEmbedder(4)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"embedder": "local"}, "embedder 'local' has no method 'embed'"),
        ({"extractor": 5}, "'extract'"),
        ({"llm": "gpt"}, "'create'"),
        ({"graph_db": "store"}, "'transact'"),
        ({"vector_db": "pgvector"}, "'products'"),
        ({"llm": ScriptedClient([]), "model_client": ScriptedClient([])}, "llm"),
    ]

    def check(case: tuple[dict[str, Any], str]) -> None:
        with pytest.raises(InvalidArgument, match=case[1]):
            AsyncMemory(settings=make_settings(location), **case[0])

    check_each(cases, check)
    with pytest.raises(InvalidArgument, match="library excludes embedder"):
        AsyncMemory(library=object.__new__(Library), embedder=embedder)
