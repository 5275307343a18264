"""The remote embedder: requests, retries, invalid responses and secrets."""

import asyncio
import json
import socket
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from memrecall import retries
from memrecall.embedding import base, remote
from memrecall.embedding.remote import RemoteEmbedder
from memrecall.errors import EmbedderFailed, InvalidArgument

from ..cases import check_each, check_each_async
from .embedding_server import EmbeddingServer, Reply, vector

pytestmark = pytest.mark.concurrent  # a server in a thread

KEY = "sk-very-secret-key"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSES", (0.01, 0.01))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The recorded pauses between attempts; no time passes."""
    seconds_slept: list[float] = []

    async def sleep(seconds: float) -> None:
        seconds_slept.append(seconds)

    monkeypatch.setattr("memrecall.retries.asyncio.sleep", sleep)
    return seconds_slept


def embedding(*numbers: float, index: int = 0) -> dict[str, object]:
    return {"index": index, "embedding": list(numbers)}


def malformed(*items: object) -> Reply:
    return Reply(body=json.dumps({"data": items}))


async def test_request_has_openai_format(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "BATCH_SIZE", 2)
    embedder = RemoteEmbedder(server.url + "/", "small", KEY)
    vectors = await embedder.embed(["aaa", "b", "", "cc"])
    expected = np.array([vector(text) for text in ("aaa", "b", "cc")])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors[[0, 1, 3]], expected, atol=1e-6)
    assert server.requests == [
        {"model": "small", "input": ["b", "cc"], "encoding_format": "float"},
        {"model": "small", "input": ["aaa"], "encoding_format": "float"},
    ]
    assert server.paths == ["/v1/embeddings"] * 2
    assert server.authorizations == [f"Bearer {KEY}"] * 2


async def test_request_without_key_has_no_authorization(server: EmbeddingServer) -> None:
    await RemoteEmbedder(server.url, "small", api_key="  ").embed(["a"])
    assert server.authorizations == [None]


async def test_dimensions_come_from_first_response(server: EmbeddingServer) -> None:
    embedder = RemoteEmbedder(server.url, "small")
    with pytest.raises(EmbedderFailed, match=r"embed\(\[\]\)"):
        _ = embedder.dimensions
    await embedder.embed([])
    assert embedder.dimensions == 16
    await embedder.embed([])
    assert len(server.requests) == 1


def test_model_name_does_not_contain_host() -> None:
    names = {RemoteEmbedder(url, "m").model for url in ("https://a.example/v1", "http://b:8080")}
    assert names == {"openai:m"}


def test_embedder_works_in_several_event_loops(server: EmbeddingServer) -> None:
    embedder = RemoteEmbedder(server.url, "m")
    first, second = (asyncio.run(embedder.embed(["a"])) for _ in range(2))
    np.testing.assert_array_equal(first, second)


async def test_two_transient_failures_are_retried(server: EmbeddingServer) -> None:
    async def forgive(status: int) -> None:
        server.script.extend([Reply(status), Reply(status)])
        server.requests.clear()
        assert (await RemoteEmbedder(server.url, "m").embed(["a"])).shape == (1, 16)
        assert len(server.requests) == 3

    await check_each_async([429, 500, 502, 503], forgive)


async def test_third_transient_failure_is_raised(server: EmbeddingServer) -> None:
    server.script.extend([Reply(500)] * 3)
    with pytest.raises(EmbedderFailed, match=rf"{server.url}/embeddings .* status 500"):
        await RemoteEmbedder(server.url, "m").embed(["a"])
    assert len(server.requests) == 3


async def test_client_error_is_not_retried(server: EmbeddingServer) -> None:
    async def refuse(status: int) -> None:
        server.script.append(Reply(status, "no such model"))
        server.requests.clear()
        with pytest.raises(EmbedderFailed, match=rf"{server.url}/embeddings .* status {status}"):
            await RemoteEmbedder(server.url, "m").embed(["a"])
        assert len(server.requests) == 1

    await check_each_async([301, 400, 401, 403, 404, 413], refuse)


async def test_retry_waits_for_retry_after(server: EmbeddingServer, pauses: list[float]) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=9), usegmt=True)
    server.script.extend(
        [Reply(429, headers={"Retry-After": "3"}), Reply(503, headers={"Retry-After": date})]
    )
    await RemoteEmbedder(server.url, "m").embed(["a"])
    number_pause, date_pause = (seconds for seconds in pauses if seconds)
    assert number_pause == 3
    assert 3 < date_pause <= 9


async def test_long_retry_after_is_not_awaited(server: EmbeddingServer) -> None:
    async def check(header: str) -> None:
        server.script.append(Reply(429, headers={"Retry-After": header}))
        server.requests.clear()
        with pytest.raises(EmbedderFailed) as failure:
            await RemoteEmbedder(server.url, "m").embed(["a"])
        assert failure.value.details["retry_after"] == pytest.approx(3600, abs=60)
        assert len(server.requests) == 1

    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    await check_each_async(["3600", in_an_hour], check)


MALFORMED: list[Reply] = [
    Reply(body="<html>hello</html>"),
    Reply(body=""),
    Reply(body="[" * 100_000),
    Reply(body='"text"'),
    Reply(body='{"error": "busy"}'),
    Reply(body='{"data": [{"index": 0, "embedding": [NaN, 1]}, {"index": 1}]}'),
    Reply(body="{}", headers={"Content-Encoding": "gzip"}),
    malformed(),
    malformed(embedding(1, 2)),
    malformed(*(embedding(1, 2, index=i) for i in range(3))),
    malformed(embedding(1, 2), embedding(1, 2)),
    malformed(embedding(1, 2, index=1), embedding(1, 2, index=2)),
    malformed(embedding(1, 2), embedding(1, 2, 3, index=1)),
    malformed(embedding(), embedding(index=1)),
    malformed(embedding(0, 0), embedding(1, 2, index=1)),
    malformed(embedding(float("nan"), 0), embedding(1, 2, index=1)),
    malformed(embedding(float("inf"), 0), embedding(1, 2, index=1)),
    malformed(embedding(1e300, 1e300), embedding(1, 2, index=1)),
    malformed({"index": 0, "embedding": "AACAPw=="}, embedding(1, index=1)),
    malformed({"index": 0, "embedding": ["1", "2"]}, embedding(1, 2, index=1)),
    malformed({"index": 0, "embedding": [None, True]}, embedding(1, 2, index=1)),
    malformed({"embedding": [1, 2]}, {"embedding": [1, 2]}),
]


async def test_malformed_response_is_rejected_without_side_effects(server: EmbeddingServer) -> None:
    async def refuse(reply: Reply) -> None:
        server.script.append(reply)
        server.requests.clear()
        embedder = RemoteEmbedder(server.url, "m")
        with pytest.raises(EmbedderFailed, match=f"{server.url}/embeddings"):
            await embedder.embed(["a", "b"])
        assert len(server.requests) == 1
        assert (await embedder.embed(["a", "b"])).shape == (2, 16)

    await check_each_async(MALFORMED, refuse, lambda reply: reply.body[:80])


async def test_changed_vector_length_is_rejected(server: EmbeddingServer) -> None:
    embedder = RemoteEmbedder(server.url, "m")
    await embedder.embed(["a"])
    server.script.append(malformed(embedding(1, 2)))
    with pytest.raises(EmbedderFailed, match=r"\(1, 2\), not \(1, 16\)"):
        await embedder.embed(["a"])


async def test_connection_error_names_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(EmbedderFailed, match=f"http://127.0.0.1:{port}/embeddings cannot be reach"):
        await RemoteEmbedder(f"http://127.0.0.1:{port}", "m").embed(["a"])


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALL_PROXY", "nonsense://127.0.0.1:1"), ("SSL_CERT_FILE", "/nowhere/certificates.pem")],
)
async def test_invalid_proxy_environment_is_reported(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(EmbedderFailed, match="proxies and certificates"):
        await RemoteEmbedder("http://127.0.0.1:1", "m").embed(["a"])


async def test_silent_server_times_out(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "TIMEOUT", 0.1)
    server.script.extend([Reply(seconds=30)] * 3)  # every attempt
    with pytest.raises(EmbedderFailed, match=r"did not answer in 0.1 seconds"):
        await RemoteEmbedder(server.url, "m").embed(["a"])


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_key_is_never_shown(server: EmbeddingServer, status: int) -> None:
    server.script.extend([Reply(status, f"wrong key {KEY}, sorry")] * 3)
    embedder = RemoteEmbedder(server.url, "m", KEY)
    with pytest.raises(EmbedderFailed) as error_info:
        await embedder.embed(["a"])
    traceback_text = "".join(traceback.format_exception(error_info.value))
    assert KEY not in traceback_text + repr(error_info.value) + repr(embedder) + str(embedder)
    assert ("wrong key ***, sorry" in str(error_info.value)) == (status == 400)


def test_invalid_key_or_base_url_is_rejected_without_showing_secrets() -> None:
    cases = [
        *(("http://127.0.0.1", f"sk-secret{end}", "api_key") for end in ("\nX: y", " 密", "\x7f")),
        ("http://me:secret@host/v1", None, "base_url"),
        ("http://host/v1?key=secret", None, "base_url"),
        *(
            (url, None, "not an HTTP address")
            for url in ("", "api.openai.com", "ftp://host", "http://", "http://h:99999")
        ),
    ]

    def check(case: tuple[str, str | None, str]) -> None:
        url, key, words = case
        with pytest.raises(InvalidArgument, match=words) as error_info:
            RemoteEmbedder(url, "m", key)
        assert "secret" not in str(error_info.value)

    check_each(cases, check)
