"""mem0's configuration, read as the arguments of `Memory`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memrecall.embedding import make_embedder
from memrecall.errors import InvalidArgument
from memrecall.settings import OPENAI, load_settings

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
_CROSS_ENCODERS = ("sentence_transformer", "huggingface")
_IN_A_FOLDER = ("qdrant", "chroma", "faiss")
_PROMPTS = ("custom_instructions", "custom_fact_extraction_prompt")
# They say nothing that memrecall needs: the history is in the database, the format is the newest.
_WITHOUT_EFFECT = ("version", "history_db_path")
_PARTS = ("vector_store", "llm", "embedder", "reranker", *_PROMPTS, *_WITHOUT_EFFECT)


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
    settings["reranker"] = _read_reranker(*_provider(config, "reranker"))
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


def _read_reranker(provider: str, values: Mapping[str, Any]) -> str:
    if not provider:
        return ""
    if provider not in _CROSS_ENCODERS or not values.get("model"):
        raise InvalidArgument(
            f"the reranker {provider!r} is not supported without a local model",
            hint=f"Use {' or '.join(_CROSS_ENCODERS)} with a model, or Memory(reranker=…)",
        )
    return f"cross-encoder:{values['model']}"
