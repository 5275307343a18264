"""Addresses and keys of servers that memrecall talks to: checked before anything is sent."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from memrecall.errors import InvalidArgument

PREFIX = "MEMRECALL_"
CHOICES = {"durability": ("full", "normal"), "tool_calls": ("native", "json")}
ZERO_MEANS_OFF = frozenset(
    {
        "trace_days",
        "counter_days",
        "recall_queue",
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
    """Everything that can be set, with what holds when nothing is."""

    db: str = field(default="", repr=False)  # a URL may hold a password
    embedder: str = "local"
    embedder_base_url: str = ""
    reranker: str = ""  # judges the first hits of `Memory.search`; "": none
    reranker_base_url: str = ""
    vector_db: str = ""  # where vectors beyond `vector_db_rows` lie; "": in memory all the same
    vector_db_rows: int = 200_000  # of one user
    graph_db: str = ""  # where knowledge graphs are kept; "": with everything else
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    model_timeout: float = 60.0
    tool_calls: Literal["native", "json"] = "native"
    durability: Literal["full", "normal"] = "full"
    lock_timeout: float = 10.0
    index_memory_mb: int = 1024
    snapshots: bool = True
    trace_days: int = 30  # 0: traces of recalls are not stored
    cache_dir: str = ""
    runs_dir: str = ""
    workspaces_dir: str = ""  # of the memory tools; empty: beside a SQLite file
    backups_dir: str = ""  # likewise
    backup_mb: int = 256  # the largest backup
    host: str = "127.0.0.1"
    port: int = 8765
    cors_origins: str = ""  # web pages that may call the service, divided by commas
    recalls_per_key: int = 4  # at once
    recall_queue: int = 16  # that wait behind them; 0: none
    recall_patience: float = 30.0  # seconds that they wait
    sweep_hours: float = 0.0  # between two sweeps of `memrecall serve`; 0: none
    sweep_older_days: float = 0.0  # what goes then, beside the expired and duplicates; 0: not so
    sweep_not_recalled_days: float = 0.0
    sweep_superseded_days: float = 0.0
    sweep_most_memories: int = 0  # of one user
    sweep_purge: bool = False  # removed for ever instead of hidden
    dashboard: bool = True  # pages for people at /, where the extra `dashboard` is installed
    counter_days: int = 30  # that the dashboard's counters are kept; 0: nothing is counted
    log_contents: bool = False  # what is said and asked may be logged
    telemetry: bool = False  # spans of the service, to where the OTEL_ variables say
    chat_recalls: int = 3  # in one turn of a chat, at most
    chat_count_forced: bool = True  # the recall that every turn makes is one of them
    chat_recall_seconds: float = 10.0  # of one recall; then the turn goes on without it
    chat_recall_with_model: bool = False  # else the rules recall, and the model only answers
    chat_seconds: float = 120.0  # of all answers of the model in one turn
    chat_history: int = 20  # messages of the session that the model is shown; 0: none

    def allowed_origins(self) -> frozenset[str]:
        """The web pages that may call the service."""
        return frozenset(filter(None, map(str.strip, self.cors_origins.split(","))))

    def redacted(self) -> dict[str, Any]:
        """The settings as they may be printed: no password, the key only as set or not."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["db"] = re.sub(r"(://[^/@:]*):[^@]*@", r"\1:***@", self.db)
        values["api_key"] = "set" if self.api_key else ""
        return values


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings in force, and where each one came from."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> LoadedSettings:
    """Gather the settings; a value of the wrong kind is an error that names its source."""
    environment = os.environ if environment is None else environment
    file, from_file = _read_file(file, environment)
    sources = (
        (str(file), from_file),
        ("environment", _read_environment(environment)),
        ("argument", {k: v for k, v in (arguments or {}).items() if v is not None}),
    )
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source, given in sources:
        for name, value in given.items():
            values[name] = _convert(name, value, source)
            origins[name] = source
    if not values.get("db"):
        values["db"] = str(default_database())
    if not values.get("cache_dir"):
        values["cache_dir"] = str(_folders().user_cache_path)
    if not values.get("runs_dir"):
        values["runs_dir"] = str(_folders().user_data_path / "runs")
    return LoadedSettings(Settings(**values), origins, file)


def default_database() -> Path:
    """The database in the user's data folder."""
    folder: Path = _folders().user_data_path
    return folder / "memrecall.db"


def _folders() -> Any:
    from platformdirs import PlatformDirs

    return PlatformDirs("memrecall", appauthor=False)


def _read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = {PREFIX + item.name.upper(): item.name for item in fields(Settings)}
    # Set to nothing counts as not set: the usual way to switch a variable off.
    return {names[key]: value for key, value in environment.items() if key in names and value}


def _read_file(
    file: Path | None, environment: Mapping[str, str]
) -> tuple[Path | None, dict[str, Any]]:
    """The settings file: the one named, or the one in the user's configuration folder if any."""
    named = file or (Path(named) if (named := environment.get(PREFIX + "CONFIG")) else None)
    path = named or _folders().user_config_path / "config.toml"
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if named is None:
            return None, {}
        raise InvalidArgument(
            f"there is no settings file {path}", hint=f"Check {PREFIX}CONFIG"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the settings file {path} cannot be read: {error}") from None
    unknown = sorted(set(given) - {item.name for item in fields(Settings)})
    if unknown:
        raise InvalidArgument(
            f"{path} sets {unknown[0]!r}, which is not a setting",
            hint="`memrecall doctor` lists them",
        )
    return path, given


def _convert(name: str, value: Any, source: str) -> Any:
    wanted = type(getattr(Settings(), name))
    try:
        converted = _as_bool(value) if wanted is bool else wanted(value)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{name} = {value!r} (from {source}) is not a {wanted.__name__}"
        ) from None
    if name in CHOICES and converted not in CHOICES[name]:
        hint = f"Use {' or '.join(CHOICES[name])}"
        raise InvalidArgument(f"{name} {value!r} is not known", hint=hint)
    if wanted in (int, float) and not _is_enough(name, cast(float, converted)):
        least = "0 or more" if name in ZERO_MEANS_OFF else "above 0"
        raise InvalidArgument(f"{name} = {value!r} (from {source}) must be {least}")
    return converted


def _is_enough(name: str, number: float) -> bool:
    return number >= 0 if name in ZERO_MEANS_OFF else number > 0


def _as_bool(value: Any) -> bool:
    said = str(value).strip().lower()
    if said in ("1", "true", "yes", "on"):
        return True
    if said in ("0", "false", "no", "off"):
        return False
    raise ValueError(value)


OPENAI = "https://api.openai.com/v1"


def check_url(url: str) -> str:
    """Return `url` if requests can go there and errors may show it."""
    hint = f"Write it like {OPENAI}"
    if set(url) & set("@?#"):  # where secrets hide: so the value is not shown
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
    """Return the key if a header can carry it; the HTTP library's own complaint would show it."""
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise InvalidArgument("api_key has a character that is not printable ASCII")
    return key
