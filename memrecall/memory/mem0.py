"""mem0's ways to call: ids inside filters, other names, dates, and its configuration."""

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import ValidationError

from memrecall.embedding import make_embedder
from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.settings import OPENAI, load_settings
from memrecall.store import EDITABLE_FIELDS
from memrecall.types import NewMemory, parse_time

ANY_VALUE = "*"  # as the value of a filter
_DAY = timedelta(days=1)
_ID_NAMES = {
    "user_id": "user_id",
    "agent_id": "agent_id",
    "run_id": "session_id",
    "session_id": "session_id",
}
_FIELD_ALIASES = {"memory": "content", "text": "content", "data": "content"}
_FILE = "memrecall.db"
# Servers with OpenAI's interface and their default addresses.
_SERVERS = {
    "openai": OPENAI,
    "openai_structured": OPENAI,
    "deepseek": "https://api.deepseek.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "lmstudio": "http://localhost:1234/v1",
    "ollama": "http://localhost:11434/v1",
    "together": "https://api.together.xyz/v1",
    "vllm": "http://localhost:8000/v1",
    "xai": "https://api.x.ai/v1",
}
_LOCAL_EMBEDDERS = {"huggingface": "sentence-transformers", "fastembed": "fastembed"}
_IN_A_FOLDER = ("qdrant", "chroma", "faiss")
_PROMPTS = ("custom_instructions", "custom_fact_extraction_prompt")
# They say nothing that memrecall needs: the history is in the database, the format is the newest.
_WITHOUT_EFFECT = ("version", "history_db_path")
_PARTS = ("vector_store", "llm", "embedder", *_PROMPTS, *_WITHOUT_EFFECT)


class CallScope(NamedTuple):
    """The ids that a call names, in the order that `ScopeBinding.scope` takes them."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    project: str | None = None


def take_scope(
    filters: Mapping[str, Any] | None, *, project: str | None = None, **ids: str | None
) -> tuple[CallScope, dict[str, Any]]:
    """Return the ids of a call, those in its filters included, and the remaining filters.

    An id counts at the top level of the filters and in the parts of an AND, where it holds for
    every result. Lists, operators and "*" are ordinary filters.
    """
    named: dict[str, Any] = {}
    for name, value in ids.items():
        _name_id(named, name, value)
    rest = _take_ids(filters, named) if isinstance(filters, Mapping) else filters
    return CallScope(**named, project=project), rest or {}


def _take_ids(filters: Mapping[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name, value in filters.items():
        is_plain = value is not None and not isinstance(value, Mapping | list | tuple | set)
        if name in _ID_NAMES and is_plain and value != ANY_VALUE:
            _name_id(named, name, value)
        elif str(name).lower() == "and" and isinstance(value, list | tuple):
            parts = [_take_ids(p, named) if isinstance(p, Mapping) else p for p in value]
            rest[name] = parts
        else:
            rest[name] = value
    return rest


def _name_id(named: dict[str, Any], name: str, value: Any) -> None:
    field = _ID_NAMES[name]
    if value is None:
        return
    if named.setdefault(field, value) != value:
        raise InvalidArgument(
            f"{name} is given twice: {named[field]!r} and {value!r}", hint="Pass one of them"
        )


def choose_limit(limit: int, top_k: int | None, default: int) -> int:
    """Return the number of results that a call wants, as `limit` or as `top_k`."""
    if top_k is None:
        return limit
    if limit not in (default, top_k):
        raise InvalidArgument(
            f"limit {limit} and top_k {top_k} differ", hint="They mean the same: pass one of them"
        )
    return top_k


def parse_moment(value: object, name: str) -> datetime | None:
    """Return a time from a datetime, a text or Unix seconds; a date means its noon in UTC.

    At noon in UTC it is the same day nearly everywhere.
    """
    if value is None:
        return None
    day = _parse_date(value)
    if day is not None:
        return parse_time(datetime.combine(day, time(12)), name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise InvalidArgument(
                f"{name} {value!r} is not a time", hint="Pass Unix seconds, not milliseconds"
            ) from None
    return parse_time(value, name)


def parse_expiration(value: object) -> datetime | None:
    """Return when the last day of a memory ends; None means that it has none."""
    if value is None:
        return None
    day = value.date() if isinstance(value, datetime) else _parse_date(value)
    if day is None:
        raise InvalidArgument(
            f"expiration_date {value!r} is not a date", hint="Write it like 2026-12-31"
        )
    return parse_time(datetime.combine(day, time()), "expiration_date") + _DAY


def expiration_date(expires_at: datetime | None) -> str | None:
    """Return the last day on which a memory is valid to its end, as mem0 writes it."""
    return None if expires_at is None else (expires_at - _DAY).date().isoformat()


def _parse_date(value: object) -> date | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) and "W" not in value else None
    except ValueError:
        return None


def parse_update(data: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to update, validated like the fields of a new memory."""
    values: dict[str, Any] = dict(fields)
    if isinstance(data, Mapping):
        values = {**data, **values}
    elif data is not None:
        values = {"content": data, **values}
    if "expiration_date" in values:
        values["expires_at"] = parse_expiration(values.pop("expiration_date"))
    values = {_FIELD_ALIASES.get(name, name): value for name, value in values.items()}
    unknown = sorted(set(values) - set(EDITABLE_FIELDS))
    if unknown:
        raise InvalidArgument(
            f"the field {unknown[0]!r} of a memory cannot be updated",
            hint=f"Use {', '.join(sorted(EDITABLE_FIELDS))}",
        )
    if not values:
        raise InvalidArgument("the update has no fields", hint="Pass the new text, or a field")
    try:
        checked = NewMemory.model_validate({"content": "-", **values})
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    return {name: getattr(checked, name) for name in values}


def options_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Memory` for a configuration of mem0.

    InvalidArgument names what memrecall has no counterpart of.
    """
    unknown = sorted(set(config) - set(_PARTS))
    if unknown:
        raise InvalidArgument(
            f"the configuration has {unknown[0]!r}, which memrecall does not know",
            hint=f"Use {', '.join(_PARTS)}",
        )
    settings: dict[str, Any] = {"db": _read_database(*_provider(config, "vector_store"))}
    provider, values = _provider(config, "llm")
    if provider:
        model, settings["base_url"], settings["api_key"] = _read_server("llm", provider, values)
        settings["model"] = model
    given = {name: value for name, value in settings.items() if value}
    return {
        "settings": load_settings(given).settings,
        "embedder": _read_embedder(*_provider(config, "embedder")),
        "prompt": next((config[name] for name in _PROMPTS if config.get(name)), None),
    }


def _provider(config: Mapping[str, Any], part: str) -> tuple[str, Mapping[str, Any]]:
    """Return the provider of a part and its settings, empty if the part is not configured."""
    value = config.get(part) or {}
    values = value.get("config") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(values or {}, Mapping):
        raise InvalidArgument(
            f"{part} {value!r} is not a configuration",
            hint='Write it like {"provider": "openai", "config": {…}}',
        )
    return str(value.get("provider") or ""), values or {}


def _read_database(provider: str, values: Mapping[str, Any]) -> str:
    if not provider:
        return ""
    if provider == "pgvector":
        if url := values.get("connection_string"):
            return str(url)
        user, password = (quote(str(values.get(name) or ""), "") for name in ("user", "password"))
        login = f"{user}:{password}@" if password else f"{user}@" if user else ""
        host, port = values.get("host") or "localhost", values.get("port") or 5432
        return f"postgresql://{login}{host}:{port}/{values.get('dbname') or 'postgres'}"
    if provider in _IN_A_FOLDER and (path := values.get("path")):
        folder = Path(path).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder / _FILE)
    raise InvalidArgument(
        f"the vector store {provider!r} cannot be used: memrecall stores in SQLite or PostgreSQL",
        hint=f"Use pgvector, or {', '.join(_IN_A_FOLDER)} with a path, where {_FILE} is created",
    )


def _read_server(part: str, provider: str, values: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return model, address and key of a server with OpenAI's interface."""
    if provider not in _SERVERS:
        raise InvalidArgument(
            f"the {part} provider {provider!r} is not supported",
            hint=f"Use {', '.join(_SERVERS)}, or pass an object to Memory",
        )
    if not values.get("model"):
        raise InvalidArgument(f"the {part} has no model", hint="Set config.model")
    name = provider.partition("_")[0]
    url = str(values.get(f"{name}_base_url") or _SERVERS[provider])
    if name == "ollama" and not url.rstrip("/").endswith("/v1"):
        url = f"{url.rstrip('/')}/v1"  # where it has OpenAI's interface
    key = values.get("api_key") or os.environ.get(f"{name.upper()}_API_KEY", "")
    return str(values["model"]), url, str(key)


def _read_embedder(provider: str, values: Mapping[str, Any]) -> Any:
    if not provider:
        return None
    if kind := _LOCAL_EMBEDDERS.get(provider):
        return make_embedder(f"{kind}:{values.get('model') or ''}")
    model, url, key = _read_server("embedder", provider, values)
    return make_embedder(f"openai:{model}", base_url=url, api_key=key or None)
