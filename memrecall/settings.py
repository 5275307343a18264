"""Settings from arguments, the environment and a file; checks of server addresses and keys."""

import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from memrecall.errors import InvalidArgument

PREFIX = "MEMRECALL_"
CHOICES = {
    "durability": ("full", "normal"),
    "tool_calls": ("native", "json"),
    "reasoning": ("auto", "strip", "open", "keep"),
    "chat_leak_mode": ("strict", "lenient"),
    "chat_extract": ("auto", "on", "off"),
}
_BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_CONNECTION = ("durability", "lock_timeout", "statement_timeout", "retry_seconds", "read_only")
ZERO_MEANS_OFF = frozenset(
    {
        "trace_days",
        "counter_days",
        "retry_seconds",
        "recall_queue",
        "text_workers",
        "drain_seconds",
        "key_rate",
        "address_rate",
        "chat_recalls",
        "chat_history",
        "sweep_hours",
        "sweep_older_days",
        "sweep_not_recalled_days",
        "sweep_superseded_days",
        "sweep_most_memories",
    }
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their defaults."""

    db: str = field(default="", repr=False)  # a URL may hold a password
    embedder: str = "local"
    embedder_base_url: str = ""
    embedder_timeout: float = 10.0  # seconds for a question; a hybrid search then does without
    query_map: bool = True  # move the vectors of questions towards those of answers
    reranker: str = ""  # reorders the first hits of `Memory.search`; "": none
    reranker_base_url: str = ""
    vector_db: str = ""  # for users with more than `vector_db_rows` vectors; "": in memory
    vector_db_rows: int = 200_000  # per user
    graph_db: str = ""  # where knowledge graphs are stored; "": in the store
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    model_timeout: float = 60.0
    model_options: str = ""  # a JSON object: fields of every request, such as temperature
    tool_calls: Literal["native", "json"] = "native"
    reasoning: Literal["auto", "strip", "open", "keep"] = "auto"  # if the model writes it as text
    durability: Literal["full", "normal"] = "full"
    read_only: bool = False  # refuse writes and create no file
    lock_timeout: float = 10.0
    statement_timeout: float = 20.0  # of PostgreSQL, beside the waiting for locks
    retry_seconds: float = 10.0  # that work waits for a PostgreSQL server that restarts; 0: none
    index_memory_mb: int = 1024
    page_mb: int = 8  # a page of messages, memories or results ends after so much text
    metadata_kb: int = 1024  # of one message or memory
    query_cost: int = 100_000_000  # index entries that a query in the query language may read
    snapshots: bool = True
    trace_days: int = 30  # 0: traces are not stored
    cache_dir: str = ""
    runs_dir: str = ""
    workspaces_dir: str = ""  # for the memory tools; empty: beside a SQLite file
    backups_dir: str = ""  # the same
    backup_mb: int = 256  # maximum size
    knowledge_characters: int = 100_000  # of one entry of the knowledge base
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1  # processes of `memrecall serve` that answer requests
    cors_origins: str = ""  # web pages that may call the service, separated by commas
    text_workers: int = 2  # processes of `memrecall serve` for work on long texts; 0: threads
    text_seconds: float = 10.0  # that such work may take
    drain_seconds: float = 0.0  # from SIGTERM, for /readyz to fail before requests do; 0: none
    connections: int = 2_000  # open at once; the oldest idle ones are closed for new ones
    key_rate: float = 200.0  # requests of a key per second, on average over 10 seconds; 0: no limit
    address_rate: float = 20.0  # the same of an address without a valid key; 0: no limit
    trusted_proxies: str = ""  # addresses or networks whose X-Forwarded-For is believed
    recalls_per_key: int = 4  # concurrently
    recall_queue: int = 16  # waiting recalls; 0: none
    recall_patience: float = 30.0  # seconds that a recall may wait
    sweep_hours: float = 0.0  # between two retention sweeps of `memrecall serve`; 0: none
    sweep_older_days: float = 0.0  # removed as well as expired and duplicate ones; 0: off
    sweep_not_recalled_days: float = 0.0
    sweep_superseded_days: float = 0.0
    sweep_most_memories: int = 0  # per user
    sweep_purge: bool = False  # erase instead of hide
    forget_messages: bool = False  # the tool `forget` may erase messages, permanently
    dashboard: bool = True  # the web dashboard at /, if the extra `dashboard` is installed
    counter_days: int = 30  # retention of the dashboard's counters; 0: off
    log_contents: bool = False  # log messages and queries
    telemetry: bool = False  # export spans as configured by the OTEL_ variables
    chat_recalls: int = 3  # maximum per chat turn
    chat_count_forced: bool = True  # include the recall that every turn starts with
    chat_recall_seconds: float = 10.0  # timeout of one recall; the turn then continues without it
    chat_recall_with_model: bool = False  # otherwise the rules recall, and the model only answers
    chat_seconds: float = 120.0  # for all model answers of one turn
    chat_history: int = 20  # messages of the session shown to the model; 0: none
    chat_leak_mode: Literal["strict", "lenient"] = "strict"  # calls that a model writes as text
    chat_extract: Literal["auto", "on", "off"] = "auto"  # facts of messages; auto: in the CLI only

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
        """Return the settings of a process that writes nothing: no traces, snapshots, counters."""
        off: dict[str, Any] = dict.fromkeys(("trace_days", "counter_days", "sweep_hours"), 0)
        return replace(self, snapshots=False, vector_db="", **off)

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
        "runs_dir": _folders().user_data_path / "runs",
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
    names = {PREFIX + item.name.upper(): item.name for item in fields(Settings)}
    # An empty variable counts as unset: that is the usual way to switch one off.
    return {names[key]: value for key, value in environment.items() if key in names and value}


def _read_file(
    file: Path | None, environment: Mapping[str, str]
) -> tuple[Path | None, dict[str, Any]]:
    """Read the given file, or the one in the user's configuration folder if there is one."""
    variable = environment.get(PREFIX + "CONFIG")
    requested = file or (Path(variable) if variable else None)
    path = requested or config_folder() / "config.toml"
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if requested is None:
            return None, {}
        raise InvalidArgument(
            f"there is no settings file {path}", hint=f"Check {PREFIX}CONFIG"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the settings file {path} cannot be read: {error}") from None
    unknown = sorted(set(values) - {item.name for item in fields(Settings)})
    if unknown:
        raise InvalidArgument(
            f"{path} sets {unknown[0]!r}, which is not a setting",
            hint="`memrecall doctor` lists them",
        )
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
    if name in CHOICES and converted not in CHOICES[name]:
        hint = f"Use {' or '.join(CHOICES[name])}"
        raise InvalidArgument(f"{name} {value!r} is not known", hint=hint)
    may_be_zero = name in ZERO_MEANS_OFF
    if expected in (int, float) and not (converted >= 0 if may_be_zero else converted > 0):
        minimum = "0 or more" if may_be_zero else "above 0"
        raise InvalidArgument(f"{name} = {value!r} (from {source}) must be {minimum}")
    return converted


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
