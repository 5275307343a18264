"""A diagnosis of the settings and of the parts of a library, as `memrecall doctor` prints it."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memrecall import model
from memrecall.errors import MemrecallError
from memrecall.json_objects import load_json_object
from memrecall.library.library import Library
from memrecall.model import protocol
from memrecall.model.failures import FORCED_CHOICE, create_accepted, find_refused, to_model_failure
from memrecall.model.structured import repair_json
from memrecall.search import IndexCache
from memrecall.settings import OPENAI, LoadedSettings, Settings, check_url, load_settings
from memrecall.store.database.integrity import find_risks
from memrecall.text import TEXT_VERSION

_TIMEOUT = 5.0  # seconds
_PROBE_SECONDS, _LOCAL_SECONDS = 1.0, 20.0  # for the models of a local server, and for a call
LOCAL_PORTS = {"Ollama": 11434, "LM Studio": 1234, "vLLM": 8000, "llama.cpp": 8080}
_USERS_PER_PAGE = 20  # and the number of users whose indexes are checked quickly
_MAX_PROBLEMS = 5
_NOT_IMPLEMENTED = 501
_SUBJECTS = {"_check_tool_call": "tools", "_check_stream": "streaming", "_check_json": "JSON"}
_NUMBERS = {name: {"type": "integer"} for name in ("a", "b")}
_TOOL: protocol.ToolSchema = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": _NUMBERS, "required": ["a", "b"]},
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str
    is_ok: bool
    message: str
    is_warning: bool = False  # it works, at a risk

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "subject": self.subject,
            "ok": self.is_ok,
            "message": self.message,
            "warning": self.is_warning,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, and the settings with the source of each."""

    findings: tuple[Finding, ...]
    settings: Mapping[str, Any]
    origins: Mapping[str, str]

    @property
    def is_ok(self) -> bool:
        """Whether no problem was found."""
        return all(finding.is_ok for finding in self.findings)

    def changed_settings(self) -> list[str]:
        """Return the names of the settings that differ from their defaults."""
        defaults = Settings().redacted()
        return [name for name in self.origins if self.settings[name] != defaults[name]]

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain data."""
        return {
            "ok": self.is_ok,
            "findings": [finding.as_dict() for finding in self.findings],
            "settings": dict(self.settings),
            "origins": dict(self.origins),
        }


async def diagnose(
    arguments: Mapping[str, Any],
    *,
    load_embedder: bool = True,
    ask_model: bool = False,
    deep: bool = False,
    ports: Mapping[str, int] = LOCAL_PORTS,
) -> Diagnosis:
    """Check the settings, the database, the embedder and the model.

    `ask_model` sends the model a few short requests; otherwise only its address is checked. `deep`
    reads every row and every index. `ports` are where model servers of this machine may listen.
    """
    loaded = load_settings(arguments)
    findings = [
        Finding("settings", True, f"from {loaded.file}" if loaded.file else "no settings file")
    ]
    try:
        async with await Library.open(loaded.settings, create=False) as library:
            findings += await _check_library(library, load_embedder, deep)
    except MemrecallError as error:
        findings.append(Finding("database", False, str(error)))
    address = await _check_model(loaded)
    if ask_model and loaded.settings.model:
        findings += await _check_answers(loaded.settings, address)
    else:
        findings.append(address)
    local = await asyncio.gather(*(_check_local(*server) for server in ports.items()))
    findings += filter(None, local)
    return Diagnosis(tuple(findings), loaded.settings.redacted(), loaded.origins)


async def _check_library(library: Library, load_embedder: bool, deep: bool) -> list[Finding]:
    store = library.store
    findings = [
        Finding("database", True, store.location),
        Finding("schema", True, f"version {await store.schema_version()}"),
    ]
    if store.file is not None and not library.settings.read_only:
        findings.append(_check_permissions(store.file))
    findings += [
        Finding("durability", True, risk, True) for risk in await store.database.inspect(find_risks)
    ]
    findings += await _check_rows(library, deep)
    if store.facts.text_version != TEXT_VERSION:
        problem = (
            f"search text has the old version {store.facts.text_version}: run `memrecall reindex`"
        )
        findings.append(Finding("search text", False, problem))
    findings.append(await _check_embedder(library, load_embedder))
    findings.append(await _check_vectors(library))
    return findings


def _check_permissions(file: Path) -> Finding:
    if not os.access(file, os.W_OK) or not os.access(file.parent, os.W_OK):
        return Finding("permissions", False, f"{file} or its folder cannot be written")
    if file.stat().st_mode & 0o077:
        return Finding("permissions", False, f"{file} can be read by others: chmod 600")
    return Finding("permissions", True, "readable and writable by its owner alone")


async def _check_rows(library: Library, deep: bool) -> list[Finding]:
    """Check the files, the tables and their references, and the indexes derived from them."""
    try:
        damage = await library.store.find_damage(deep=deep)
        damage["indexes"] = [] if any(damage.values()) else await _compare_indexes(library, deep)
    except MemrecallError as error:
        damage = {"integrity": [str(error)]}
    depth = "all rows and indexes" if deep else "quickly; --deep for all rows and indexes"
    return [
        Finding(subject, not problems, "; ".join(problems[:_MAX_PROBLEMS]) or f"checked {depth}")
        for subject, problems in damage.items()
    ]


async def _compare_indexes(library: Library, deep: bool) -> list[str]:
    """Return the users whose index, loaded as a search does, differs from the stored rows."""
    problems: list[str] = []
    async for page in library.store.owners.pages(_USERS_PER_PAGE):
        problems += filter(None, [await _compare_index(library, user_id) for user_id in page])
        if not deep:
            break
    return problems


async def _compare_index(library: Library, user_id: str) -> str:
    feed = library.store.feed(user_id)
    version = await feed.version()
    if version is None:
        return ""
    new = IndexCache(None, None, library.settings.index_memory_mb * 1024 * 1024)
    async with library.cache.open(feed, version) as loaded, new.open(feed, version) as built:
        if loaded is None or built is None or loaded.version != built.version:
            return ""  # written to or erased in between
        extra = len(loaded.living_rows() - built.living_rows())
        missing = len(built.living_rows() - loaded.living_rows())
    if not extra and not missing:
        return ""
    lines = f"{extra} rows that are not stored, and lacks {missing} that are"
    return f"the index of {user_id!r} has {lines}: delete the folder of snapshots"


async def _check_embedder(library: Library, load: bool) -> Finding:
    embedder = library.embedder
    if embedder is None:
        return Finding("embedder", True, "none: search by keywords only")
    if not load:
        return Finding("embedder", True, f"{embedder.model} (not loaded)")
    try:
        vectors = await embedder.embed(["recall", "回忆"])
    except MemrecallError as error:
        return Finding("embedder", False, str(error))
    return Finding("embedder", True, f"{embedder.model}, {vectors.shape[1]} dimensions")


async def _check_vectors(library: Library) -> Finding:
    if library.embedder is None:
        return Finding("vectors", True, "disabled")
    model, stored = library.embedder.model, library.store.facts.embedding_model
    if stored not in (None, model):
        problem = f"created by {stored}, but the embedder is {model}: run `memrecall reindex`"
        return Finding("vectors", False, problem)
    missing = await library.store.vectors(model).count_pending()
    if missing:
        return Finding("vectors", True, f"{missing} rows have none yet: `memrecall reindex`", True)
    return Finding("vectors", True, "every row has one")


async def _check_model(loaded: LoadedSettings) -> Finding:
    """Check whether the model's server responds, without a request that may cost money."""
    settings = loaded.settings
    if not settings.model:
        return Finding("model", True, "none: keeps, finds and orders what was said; facts need one")
    import httpx

    address = settings.base_url or OPENAI
    name = f"{settings.model} at {address}"
    headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT, headers=headers) as client:
            response = await client.get(f"{check_url(address).rstrip('/')}/models")
    except MemrecallError as error:
        return Finding("model", False, str(error))
    except httpx.HTTPError as error:
        return Finding("model", False, f"{name}: no answer ({type(error).__name__})")
    if response.status_code in (401, 403):
        return Finding("model", False, f"{name}: the key is refused ({response.status_code})")
    # A server that lists no models (404, 501) may still answer chat requests.
    if response.status_code >= 500 and response.status_code != _NOT_IMPLEMENTED:
        return Finding("model", False, f"{name}: the server fails ({response.status_code})")
    return Finding("model", True, name)


async def _check_local(server: str, port: int) -> Finding | None:
    """Ask the first chat model of a local server for a tool call; None if none listens."""
    import httpx

    url = f"http://127.0.0.1:{port}/v1"
    try:
        # No proxy of the environment: it would be asked for its own loopback.
        async with httpx.AsyncClient(timeout=_PROBE_SECONDS, trust_env=False) as http:
            models = (await http.get(f"{url}/models")).json()["data"] or ()
            names = [str(each["id"]) for each in models]
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return None
    name = next((name for name in names if "embed" not in name.lower()), "")
    if not name:
        return Finding("local model", True, f"{server} at {url} has no chat model: load one", True)
    client = model.make_client(Settings(model=name, base_url=url, model_timeout=_LOCAL_SECONDS))
    assert client is not None  # noqa: S101 -- a model is set
    try:
        tools, *_ = await _check_tool_call(client)
    except MemrecallError as error:
        tools = Finding("tools", False, str(error))
    await client.close()
    use = f"to use it: MEMRECALL_MODEL={shlex.quote(name)} MEMRECALL_BASE_URL={url}"
    if not tools.is_ok:
        use = f"{name} is of no use for recalls, which need a model that calls tools"
    return Finding("local model", True, f"{server} {tools.message}; {use}", not tools.is_ok)


async def _check_answers(settings: Settings, address: Finding) -> list[Finding]:
    """Ask the model for a tool call, for a stream and for JSON; its address is known to work.

    A server may list its models for everybody and refuse every request: then it does not work.
    """
    client = model.make_client(settings)
    assert client is not None  # noqa: S101 -- a model is set
    findings: list[Finding] = []
    problems: list[str] = []
    for check in (_check_tool_call, _check_stream, _check_json):
        try:
            findings += await check(client)
        except Exception as error:  # plugins raise errors of any type
            problems.append(_describe_failure(error))
            findings.append(Finding(_SUBJECTS[check.__name__], False, problems[-1]))
    await client.close()
    if address.is_ok and len(problems) == len(_SUBJECTS):
        address = Finding(address.subject, False, f"answers no request: {problems[0]}")
    return [address, *findings]


def _describe_failure(error: Exception) -> str:
    return str(error if isinstance(error, MemrecallError) else to_model_failure(error))


async def _check_tool_call(client: protocol.ChatCompletionClient) -> list[Finding]:
    """Force a tool call; if that fails, let the model choose: recalls can work that way too."""
    problem = "a forced choice is accepted, but no tool was called"
    try:
        reply = await _request_call(client, "required")
    except Exception as error:  # plugins raise errors of any type
        reply, problem = None, _describe_failure(error)
    is_refused = FORCED_CHOICE in find_refused(client)
    is_forced = reply is not None and _has_call(reply) and not is_refused
    if reply is None or not (_has_call(reply) or is_refused):
        reply = await _request_call(client, "auto")
    has_called = _has_call(reply)
    choice = "cannot be forced: the model is asked to call them" if is_refused else problem
    usage = reply.usage.prompt_tokens + reply.usage.completion_tokens
    counted = f"{usage} tokens" if usage else "not reported: tokens are estimated"
    message = "calls tools" if has_called else "answers with text instead of a tool call"
    return [
        Finding("tools", has_called, message),
        Finding("forced tools", is_forced or is_refused, "can be forced" if is_forced else choice),
        Finding("usage", True, counted),
    ]


async def _request_call(
    client: protocol.ChatCompletionClient, choice: Literal["required", "auto"]
) -> protocol.CreateResult:
    return await create_accepted(client, _make_question(), tools=[_TOOL], tool_choice=choice)


def _has_call(reply: protocol.CreateResult) -> bool:
    return not isinstance(reply.content, str)


async def _check_stream(client: protocol.ChatCompletionClient) -> list[Finding]:
    parts = [part async for part in client.create_stream(_make_question())]
    return [Finding("streaming", True, f"works, in {len(parts) - 1} pieces")]


async def _check_json(client: protocol.ChatCompletionClient) -> list[Finding]:
    question = _make_question("Answer with a JSON object.")
    reply = await create_accepted(client, question, json_output=True)
    text = reply.content if isinstance(reply.content, str) else ""
    if load_json_object(text) is not None:
        return [Finding("JSON", True, "works")]
    try:
        is_repaired = isinstance(repair_json(text), dict)
    except ValueError:
        is_repaired = False
    message = "not plain: answers are repaired" if is_repaired else "answers without JSON"
    return [Finding("JSON", is_repaired, message)]


def _make_question(more: str = "") -> list[protocol.LLMMessage]:
    return [protocol.UserMessage(content=f"What is 2 plus 3? {more}".strip(), source="user")]
