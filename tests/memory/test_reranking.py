"""Rerankers: an endpoint on loopback, a cross-encoder, and their failures."""

import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import ModuleType
from typing import Any

import pytest

from memrecall.errors import InvalidArgument, ModelFailed
from memrecall.memory import AsyncMemory, CrossEncoderReranker, EndpointReranker
from memrecall.memory.reranking import make_reranker, normalize_scores
from memrecall.settings import Settings
from tests.cases import check_each, check_each_async
from tests.waiting import LIMIT

from .conftest import make_settings
from .word_extractor import WordExtractor


class RerankServer(HTTPServer):
    """A rerank endpoint with a configurable answer."""

    answer: Any = None
    status = 200
    requests: list[Any]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: RerankServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers.get("Authorization"), body))
        scores = [float(len(text)) for text in body["documents"]]
        answer = self.server.answer or {
            "results": [{"index": n, "relevance_score": score} for n, score in enumerate(scores)][
                ::-1
            ]
        }
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[RerankServer]:
    rerank_server = RerankServer(("127.0.0.1", 0), _Handler)
    rerank_server.requests = []
    thread = threading.Thread(target=rerank_server.serve_forever, args=(0.01,))
    thread.start()
    yield rerank_server
    rerank_server.shutdown()
    thread.join()
    rerank_server.server_close()


@pytest.mark.concurrent
class TestEndpoint:
    async def test_endpoint_request_format(self, server: RerankServer) -> None:
        server.answer = {
            "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]
        }
        reranker = EndpointReranker(server.url, "bge", api_key="sk-1")
        assert await reranker.score("tea?", ["coffee", "tea"]) == [0.2, 0.9]
        body = {"model": "bge", "query": "tea?", "documents": ["coffee", "tea"]}
        assert server.requests == [("/v1/rerank", "Bearer sk-1", body)]

    async def test_logits_are_normalized(self, server: RerankServer) -> None:
        low, high = await EndpointReranker(server.url, "m").score("q", ["a", "longer text"])
        assert 0 < low < high < 1

    async def test_malformed_response_fails(self, server: RerankServer) -> None:
        cases: list[tuple[int, Any]] = [
            (500, {}),
            (200, b"no json"),
            (200, {"results": []}),
            (200, {"results": [{"index": 5, "relevance_score": 1}]}),
            (200, {"results": [{"index": 0, "relevance_score": "x"}]}),
            (200, b'{"results": [{"index": 0, "relevance_score": NaN}]}'),
            (200, [1]),
        ]

        async def check(case: tuple[int, Any]) -> None:
            status, answer = case
            server.status, server.answer = status, answer or {"x": 1}
            with pytest.raises(ModelFailed) as error_info:
                await EndpointReranker(server.url, "m", api_key="sk-1").score("secret", ["text"])
            assert "secret" not in str(error_info.value)
            assert "sk-1" not in str(error_info.value)

        await check_each_async(cases, check)

    async def test_unreachable_endpoint_fails(self) -> None:
        with socket.socket() as unused_socket:
            unused_socket.bind(("127.0.0.1", 0))  # bound, but not listening
            url = f"http://127.0.0.1:{unused_socket.getsockname()[1]}/v1"
            with pytest.raises(ModelFailed, match="did not answer"):
                await EndpointReranker(url, "m", timeout=LIMIT).score("q", ["t"])


class FakeCrossEncoder:
    """A fake of the library's cross-encoder."""

    def __init__(self, name: str) -> None:
        if name == "missing":
            raise OSError("not found")

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [float(query in text) * 8 - 4 for query, text in pairs]


@pytest.fixture
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    module.CrossEncoder = FakeCrossEncoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


class TestCrossEncoder:
    @pytest.mark.usefixtures("_library")
    async def test_model_is_loaded_at_first_query(self) -> None:
        reranker = CrossEncoderReranker("some/model")
        assert await reranker.score("tea", ["coffee", "tea"]) == normalize_scores([-4.0, 4.0])
        with pytest.raises(ModelFailed, match="cannot be loaded"):
            await CrossEncoderReranker("missing").score("tea", ["tea"])

    async def test_missing_package_error_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "sentence_transformers", None)
        with pytest.raises(ModelFailed) as error_info:
            await CrossEncoderReranker("m").score("tea", ["tea"])
        assert "memrecall-agent[sentence-transformers]" in error_info.value.hint


@pytest.mark.concurrent
class TestSearchWithReranker:
    @pytest.fixture
    async def memory(self, location: str, server: RerankServer) -> AsyncIterator[AsyncMemory]:
        """A memory with a reranker from the settings that prefers longer texts."""
        reranker = f"endpoint:long@{server.url}"
        settings = make_settings(location, reranker=reranker, api_key="sk-1")
        async with AsyncMemory(settings=settings, extractor=WordExtractor()) as async_memory:
            for text in ("tea", "tea with milk", "tea with milk and sugar"):
                await async_memory.add(text, "ann", infer=False)
            yield async_memory

    async def test_results_follow_reranker_order(
        self, memory: AsyncMemory, server: RerankServer
    ) -> None:
        page = await memory.search("tea", "ann")
        assert [item["memory"] for item in page["results"]] == [
            "tea with milk and sugar", "tea with milk", "tea",
        ]  # fmt: skip
        filtered_page = await memory.search("tea", "ann", threshold=0.9999)
        assert [item["memory"] for item in filtered_page["results"]] == [
            "tea with milk and sugar", "tea with milk",
        ]  # fmt: skip
        (best,) = (await memory.search("tea", "ann", limit=1))["results"]
        assert (
            best["memory"] == "tea with milk and sugar"
        )  # all results were reranked, one was requested
        plain = len(server.requests)
        await memory.search("tea", "ann", rerank=False)
        assert len(server.requests) == plain  # the plain order needs no reranker

    async def test_failing_reranker_falls_back_to_engine_order(
        self, memory: AsyncMemory, server: RerankServer
    ) -> None:
        server.status = 503
        page = await memory.search("tea", "ann")
        assert len(page["results"]) == 3
        assert "not reranked" in page["message"]


class BrokenReranker:
    """A reranker of an application with a given answer, or the error that it raises."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def score(self, query: str, texts: Sequence[str]) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def test_broken_rerankers_keep_the_engines_order(
    location: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Anything but ModelFailed was raised to the caller."""
    settings = make_settings(location)
    async with AsyncMemory(settings=settings, extractor=WordExtractor()) as plain:
        for text in ("tea", "tea with milk", "coffee, not tea, with milk"):
            await plain.add(text, "ann", infer=False)
        expected = (await plain.search("tea", "ann"))["results"]

    async def check(answer: Any) -> None:
        caplog.clear()
        broken: Any = BrokenReranker(answer)
        async with AsyncMemory(settings=settings, reranker=broken) as memory:
            for _ in range(2):
                page = await memory.search("tea", "ann")
                assert page["results"] == expected
                assert "not reranked" in page["message"]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "secret" not in caplog.text

    nan, infinite = float("nan"), float("inf")
    cases = [RuntimeError("secret"), KeyError("secret"), [], [0.5], [0.1, nan, 0.2],
             [0.1, infinite, 0.2], ["x", "y", "z"], None, 7]  # fmt: skip
    await check_each_async(cases, check)


def test_invalid_reranker_setting_is_refused() -> None:
    cases: list[str] = ["endpoint", "endpoint:m", "cross-encoder", "nobody:x"]

    def check(spec: str) -> None:
        with pytest.raises(InvalidArgument):
            make_reranker(Settings(reranker=spec))
        assert make_reranker(Settings()) is None

    check_each(cases, check)
