"""Settings from arguments, the environment and a file; checks of server addresses and keys."""

import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from memrecall.errors import InvalidArgument
from memrecall.json_objects import load_json_object

VARIABLE_PREFIX = "MEMRECALL_"
_SIMILARITY = 0.8  # of a variable to a setting, from which on it is a typing error
_OTHER_VARIABLES = frozenset({"config", "user", "hooks", "hook_problem"})  # read elsewhere
_BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_CONNECTION = ("durability", "read_only", "privacy")
_ZERO_MEANS_OFF = frozenset(
    {"trace_days", "text_workers", "drain_seconds", "key_rate", "address_rate"}
)
# What to do instead of settings of earlier versions that are gone, and their names.
_ALTERNATIVES = {
    "It has a fixed value now; remove it": (
        "backup_mb connections counter_days knowledge_characters metadata_kb page_mb query_cost"
        " query_map recall_patience recall_queue retry_seconds text_seconds vector_db_rows"
    ),
    "Give a request a deadline: the header X-Memrecall-Deadline, or `memrecall.deadline`": (
        "embedder_timeout lock_timeout statement_timeout"
    ),
    "Set data_dir to the folder that contains runs, workspaces and backups": (
        "backups_dir runs_dir workspaces_dir"
    ),
    'Use a JSON object instead: sweep = {"hours": 24, "older_than_days": 90}': (
        "sweep_hours sweep_most_memories sweep_not_recalled_days sweep_older_days sweep_purge"
        " sweep_superseded_days"
    ),
    'Use a JSON object instead: chat = {"recalls": 3, "extract": true}': (
        "chat_count_forced chat_extract chat_history chat_leak_mode chat_recall_seconds"
        " chat_recall_with_model chat_recalls chat_seconds log_contents reasoning"
    ),
    "Remove it: a search has only its own ranking": "reranker reranker_base_url",
    "Remove it, and use a model that calls tools": "tool_calls",
    "Remove it: the tool `forget` hides messages, which an undo restores": "forget_messages",
    "Remove it: spans are no longer exported, use the log and /metrics": "telemetry",
}
_REMOVED = {name: hint for hint, names in _ALTERNATIVES.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their defaults."""

    db: str = field(default="", repr=False)  # a URL may hold a password
    embedder: str = "local"
    embedder_base_url: str = ""
    vector_db: str = ""  # for users with many vectors; "": in memory
    graph_db: str = ""  # where knowledge graphs are stored; "": in the store
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    model_timeout: float = 60.0
    verify: Literal["none", "model"] = "none"  # "model": ask again about facts that are marked
    model_options: str = ""  # a JSON object: fields of every request, such as temperature
    durability: Literal["full", "normal"] = "full"
    read_only: bool = False  # refuse writes and create no file
    privacy: str = "redact,tag"  # off, tag or redact: secrets, and personal data
    index_memory_mb: int = 1024
    snapshots: bool = True
    trace_days: int = 30  # 0: traces are not stored
    cache_dir: str = ""
    data_dir: str = ""  # of runs, workspaces and backups; "": next to a SQLite file, see docs
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1  # processes of `memrecall serve` that answer requests
    cors_origins: str = ""  # web pages that may call the service, separated by commas
    text_workers: int = 2  # processes of `memrecall serve` for work on long texts; 0: threads
    drain_seconds: float = 0.0  # from SIGTERM, for /readyz to fail before requests do; 0: none
    max_seconds: float = 60.0  # that a request may ask for, see docs
    key_rate: float = 200.0  # requests of a key per second, on average over 10 seconds; 0: no limit
    address_rate: float = 20.0  # the same of an address without a valid key; 0: no limit
    trusted_proxies: str = ""  # addresses or networks whose X-Forwarded-For is believed
    recalls_per_key: int = 4  # concurrently
    sweep: str = ""  # a JSON object: hours between retention sweeps, and what they remove
    dashboard: bool = True  # the web dashboard at /, if the extra `dashboard` is installed
    chat: str = ""  # a JSON object: fields of `ChatOptions`

    def allowed_origins(self) -> frozenset[str]:
        """Return the web pages that may call the service."""
        return frozenset(filter(None, map(str.strip, self.cors_origins.split(","))))

    def proxy_networks(self) -> list[str]:
        """Return the trusted proxies; raise InvalidArgument if one is not an address or network."""
        names = list(filter(None, map(str.strip, self.trusted_proxies.split(","))))
        for name in names:
            try:
                ipaddress.ip_network(name)
            except ValueError:
                raise InvalidArgument(
                    f"trusted_proxies: {name!r} is not an address or a network",
                    hint="Write it like 10.0.0.7, or 10.0.0.0/8",
                ) from None
        return names

    def connection_options(self) -> dict[str, Any]:
        """Return the settings of `Store.open`, by name."""
        return {name: getattr(self, name) for name in _CONNECTION}

    def without_writes(self) -> "Settings":
        """Return the settings of a process that writes nothing: no traces, snapshots, sweeps."""
        return replace(self, snapshots=False, vector_db="", trace_days=0, sweep="")

    def data_folder(self) -> Path:
        """Return the folder of runs, workspaces and backups."""
        return Path(self.data_dir) if self.data_dir else Path(_folders().user_data_path)

    def redacted(self) -> dict[str, Any]:
        """Return the settings for display, without passwords and keys."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["db"] = re.sub(r"(://[^/@:]*):[^@]*@", r"\1:***@", self.db)
        values["api_key"] = "set" if self.api_key else ""
        return values


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The effective settings, and the source of each."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedSettings:
    """Read the settings; arguments override the environment, which overrides the file.

    InvalidArgument names the source of a value of the wrong type.
    """
    environment = os.environ if environment is None else environment
    file, from_file = _read_file(file, environment)
    sources = (
        (str(file), from_file),
        ("environment", _read_environment(environment)),
        ("argument", {k: v for k, v in (arguments or {}).items() if v is not None}),
    )
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source, source_values in sources:
        for name, value in source_values.items():
            values[name] = _convert(name, value, source)
            origins[name] = source
    defaults = {
        "db": default_database(),
        "cache_dir": _folders().user_cache_path,
    }
    values |= {name: str(path) for name, path in defaults.items() if not values.get(name)}
    return LoadedSettings(Settings(**values), origins, file)


def default_database() -> Path:
    """Return the path of the database in the user's data folder."""
    folder: Path = _folders().user_data_path
    return folder / "memrecall.db"


def config_folder() -> Path:
    """Return the user's folder of settings."""
    folder: Path = _folders().user_config_path
    return folder


def _folders() -> Any:
    from platformdirs import PlatformDirs

    return PlatformDirs("memrecall", appauthor=False)


def _read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in environment.items():
        # An empty variable counts as unset: that is the usual way to switch one off.
        if not key.startswith(VARIABLE_PREFIX) or not value:
            continue
        name = key.removeprefix(VARIABLE_PREFIX).lower()
        _refuse_removed(name, key)
        if name in _names():
            values[name] = value
            continue
        # Other programs set variables with this prefix too, such as MEMRECALL_SERVICE_HOST.
        similar = get_close_matches(name, _names(), 1, _SIMILARITY)
        if similar and name not in _OTHER_VARIABLES:
            hint = f"Did you mean {VARIABLE_PREFIX}{similar[0].upper()}?"
            raise InvalidArgument(f"{key} is not a setting", hint=hint)
    return values


def _names() -> list[str]:
    return [item.name for item in fields(Settings)]


def _refuse_removed(name: str, label: str) -> None:
    if name in _REMOVED:
        raise InvalidArgument(f"the setting {label} was removed", hint=_REMOVED[name])


def _read_file(
    file: Path | None, environment: Mapping[str, str]
) -> tuple[Path | None, dict[str, Any]]:
    """Read the given file, or the one in the user's configuration folder if there is one."""
    variable = environment.get(VARIABLE_PREFIX + "CONFIG")
    requested = file or (Path(variable) if variable else None)
    path = requested or config_folder() / "config.toml"
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if requested is None:
            return None, {}
        raise InvalidArgument(
            f"there is no settings file {path}", hint=f"Check {VARIABLE_PREFIX}CONFIG"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the settings file {path} cannot be read: {error}") from None
    for name in values:
        _refuse_removed(name, f"{name!r} in {path}")
        if name not in _names():
            similar = get_close_matches(name, _names(), 1)
            hint = "`memrecall doctor --json` lists all settings"
            hint = f"Did you mean {similar[0]}?" if similar else hint
            raise InvalidArgument(f"{path} sets {name!r}, which is not a setting", hint=hint)
    return path, values


def _convert(name: str, value: Any, source: str) -> Any:
    expected = type(getattr(Settings(), name))
    if expected is str and isinstance(value, Mapping):  # a table of the settings file
        value = json.dumps(value)
    try:
        converted: Any = (
            _BOOLEANS[str(value).strip().lower()] if expected is bool else expected(value)
        )
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"{name} = {value!r} (from {source}) is not a {expected.__name__}"
        ) from None
    choices = get_args(Settings.__annotations__[name])
    if choices and converted not in choices:
        raise InvalidArgument(f"{name} {value!r} is not known", hint=f"Use {' or '.join(choices)}")
    may_be_zero = name in _ZERO_MEANS_OFF
    if expected in (int, float) and not (converted >= 0 if may_be_zero else converted > 0):
        minimum = "0 or more" if may_be_zero else "above 0"
        raise InvalidArgument(f"{name} = {value!r} (from {source}) must be {minimum}")
    return converted


def parse_object(name: str, text: str, example: str) -> dict[str, Any]:
    """Return the JSON object that a setting contains; {} if it is empty."""
    values = load_json_object(text or "{}")
    if values is None:
        raise InvalidArgument(f"{name} is not a JSON object", hint=f"Write it like {example}")
    return values


OPENAI = "https://api.openai.com/v1"


def check_url(url: str) -> str:
    """Return `url` if it is an HTTP address without secrets, which errors may show."""
    hint = f"Write it like {OPENAI}"
    if set(url) & set("@?#"):  # These may contain secrets: the value is not shown.
        raise InvalidArgument("base_url has a user, a query or a fragment", hint=hint)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidArgument(f"base_url {url!r} is not an HTTP address", hint=hint)
    return url


def check_key(key: str | None) -> str:
    """Return the key if it is valid in a header; the error of the HTTP library would show it."""
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise InvalidArgument("api_key has a character that is not printable ASCII")
    return key
