"""`recall`: one recall as a plain function, without an agent framework."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Extractor
from memrecall.library.library import Library
from memrecall.model.prompts import answers_by_rules
from memrecall.scope import Permission, Scope
from memrecall.settings import Settings, load_settings
from memrecall.types import parse_time

if TYPE_CHECKING:
    from memrecall.agent import Recaller, RecallOptions, RecallResult
    from memrecall.agent.trace import Observer


async def recall(
    messages: object,
    *,
    user_id: str,
    session_id: str | None = None,
    agent_id: str | None = None,
    project: str | None = None,
    all_projects: bool = False,
    permissions: Iterable[Permission] = (),
    library: Library | None = None,
    db: str | None = None,
    settings: Settings | None = None,
    model_client: Any = None,
    options: "RecallOptions | None" = None,
    as_of: datetime | str | None = None,
    clock: Callable[[], datetime] | None = None,
    observer: "Observer | None" = None,
    time: str | None = None,
) -> "RecallResult":
    """Find what the last user message of a conversation refers to.

    `messages` is a text, a dict with role and content, a message object of a supported framework,
    or a list of them. Without a `library`, the database of `db` or of the settings is opened for
    this recall. Without a `model_client`, the model of the settings is used, or none. `as_of`
    hides what was said later; `clock` returns the current time; `observer` is called with each
    trace event. In a `project`, what belongs to others is found with `all_projects` only. `time` is
    a period such as "last week", outside of which nothing is found.
    """
    require_one_database(library, db, settings)
    if settings is None:
        settings = library.settings if library else load_settings({"db": db}).settings
    elif db is not None:
        settings = replace(settings, db=db)
    granted = frozenset(permissions)
    scope = Scope(user_id, agent_id, session_id, granted, project, all_projects)
    async with (
        nullcontext(library) if library else await Library.open(settings, create=False) as opened
    ):
        recaller = make_recaller(opened, scope, model_client, options, clock, as_of, observer)
        return await recaller.recall(messages, time=time)


def make_recaller(
    library: Library,
    scope: Scope,
    model_client: Any = None,
    options: "RecallOptions | None" = None,
    clock: Callable[[], datetime] | None = None,
    as_of: datetime | str | None = None,
    observer: "Observer | None" = None,
) -> "Recaller":
    """Return a recaller with the model and the options of the library's settings as defaults."""
    # Imported here because a program that only searches needs neither policies nor models.
    from memrecall.agent.driver import Recaller, RecallOptions, utc_now

    settings = library.settings
    options = options or RecallOptions(keep_traces_days=settings.trace_days)
    client = model_client or client_of(settings)
    moment = None if as_of is None else parse_time(as_of, "as_of")
    return Recaller(
        library, scope, client, options, clock=clock or utc_now, as_of=moment, observer=observer
    )


def require_one_database(
    library: Library | None, db: str | None, settings: Settings | None
) -> None:
    """Raise InvalidArgument if an open library comes with the settings of a database."""
    if library is not None and (db is not None or settings is not None):
        raise InvalidArgument(
            "library excludes db and settings: it has an open database",
            hint="Leave out db and settings",
        )


def client_of(settings: Settings) -> Any:
    """Return the model client of the settings; None means recalls without a model."""
    if not settings.model:
        return None
    from memrecall.model.openai_client import make_client

    return make_client(settings)


def make_extractor(settings: Settings, client: Any = None) -> Extractor | None:
    """Return an extractor with the client that is passed or configured; None without a model."""
    model = client or client_of(settings)
    if answers_by_rules(model):
        return None
    # Imported here because a program that only searches needs no model.
    from memrecall.extraction import ModelExtractor

    return ModelExtractor(model, verify=settings.verify)
