"""What every part of `AsyncMemory` stands on: whose memory it is, and what it shares."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Extractor
from memrecall.library.library import Library
from memrecall.memory.ingest import Adder, Learner
from memrecall.memory.jobs import Jobs, Processes, Schedule
from memrecall.memory.recall import client_of
from memrecall.memory.records import Binding, each_user, find_owner
from memrecall.memory.reranking import Reranker, make_reranker
from memrecall.memory.search import RecallMarks
from memrecall.memory.short_term import ShortTermMemory
from memrecall.messages import Redact
from memrecall.scope import Permission, Scope
from memrecall.settings import Settings, load_settings
from memrecall.store import Store
from memrecall.types import check_text

SessionKey = tuple[str, str | None, str]


@dataclass(frozen=True, slots=True)
class Parts:
    """An open library and those who work on it."""

    library: Library
    extractor: Extractor
    adder: Adder
    marks: RecallMarks

    @classmethod
    def make(
        cls, library: Library, extractor: Extractor | None, client: Any, processes: Processes
    ) -> "Parts":
        """The parts around a library; without an extractor, the model of the settings or rules."""
        chosen = extractor or make_extractor(library.settings, client)
        adder = Adder(library, Learner(library, chosen), chosen, processes)
        return cls(library, chosen, adder, RecallMarks(library.store))


class Shared:
    """What all faces of one memory have in common, whomever they are bound to."""

    def __init__(
        self,
        settings: Settings,
        library: Library | None,
        *,
        extractor: Extractor | None = None,
        model_client: Any = None,
        reranker: Reranker | None = None,
        redact: Redact | None = None,
    ) -> None:
        self.reranker = reranker or make_reranker(settings if library is None else library.settings)
        self.redact = redact
        self.processes = Processes()
        self.jobs = Jobs()
        self.schedules: list[Schedule] = []
        self.sessions: dict[SessionKey, ShortTermMemory] = {}
        self._settings = settings
        self._given = library
        self._extractor = extractor
        self.model_client = model_client
        self._opened: Parts | None = None
        self._opening = asyncio.Lock()

    async def parts(self) -> Parts:
        """The parts, opened by whoever asks first."""
        async with self._opening:
            if self._opened is None:
                library = self._given or await Library.open(self._settings)
                self._opened = Parts.make(
                    library, self._extractor, self.model_client, self.processes
                )
            return self._opened

    async def close(self, patience: float | None = None) -> None:
        """Finish what is under way, within so many seconds, and give everything back."""
        for schedule in self.schedules:
            await schedule.stop()
        if self._opened is None:
            return
        await self.jobs.settle(patience)
        await self._opened.marks.flush()
        if self._given is None:
            await self._opened.library.close()
        self._opened = None


def make_extractor(settings: Settings, client: Any = None) -> Extractor:
    """A model when one is given or configured, the rules otherwise."""
    # Loaded here: whoever only searches need not wait for rules and models.
    from memrecall.extraction import ModelExtractor, RuleExtractor

    model = client or client_of(settings)
    return RuleExtractor() if model is None else ModelExtractor(model)


APPLICATION = "application"


class MemoryBase:
    """A memory bound to a scope.

    What is bound here (`user_id`, `agent_id`, `session_id`, `permissions`) holds for every call;
    `actor` is who the history says has changed something. Without `db`, `settings` or a `library`
    the database of the settings is used, opened at first use. Without an `extractor`, facts are
    found by the model of the settings or else by rules.
    """

    def __init__(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        db: str | None = None,
        settings: Settings | None = None,
        library: Library | None = None,
        permissions: Iterable[Permission] = (),
        actor: str = APPLICATION,
        extractor: Extractor | None = None,
        model_client: Any = None,
        reranker: Reranker | None = None,
        redact: Redact | None = None,
    ) -> None:
        if library is not None and (db is not None or settings is not None):
            raise InvalidArgument("a library has its database already", hint="Leave out db")
        self._binding = Binding.of(user_id, agent_id, session_id, permissions)
        self._actor = check_text("actor", actor)
        self._is_bound = False
        self._shared = Shared(
            settings or load_settings({"db": db}).settings,
            library,
            extractor=extractor,
            model_client=model_client,
            reranker=reranker,
            redact=redact,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def user_id(self) -> str | None:
        """The user that it is bound to."""
        return self._binding.user_id

    @property
    def agent_id(self) -> str | None:
        """The agent that it is bound to."""
        return self._binding.agent_id

    async def close(self, patience: float | None = None) -> None:
        """Finish what is under way, within so many seconds, and give everything back."""
        if not self._is_bound:  # else it is the first one's to close
            await self._shared.close(patience)

    def bind(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        permissions: Iterable[Permission] | None = None,
        actor: str | None = None,
    ) -> Self:
        """The same memory, opened once, for a narrower scope; it never gives more than this one.

        Without `permissions` it has those of this one. It need not be closed.
        """
        face = object.__new__(type(self))
        face._binding = self._binding.narrowed(user_id, agent_id, session_id, permissions)
        face._actor = self._actor if actor is None else check_text("actor", actor)
        face._is_bound = True
        face._shared = self._shared
        return face

    async def _parts(self) -> Parts:
        return await self._shared.parts()

    def _scope(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
    ) -> Scope:
        return self._binding.scope(user_id, agent_id, session_id, run_id)

    async def _owner(self, parts: Parts, memory_id: str, user_id: str | None) -> Scope:
        return await find_owner(parts.library.store, self._binding, memory_id, user_id)

    async def _owners(
        self, store: Store, scope: Scope, user_id: str | None
    ) -> AsyncIterator[Scope]:
        """The scope itself if a user is bound or named; else the same of every user, one by one."""
        if self._binding.has_user or user_id is not None:
            yield scope
            return
        async for owner in each_user(store):
            yield replace(scope, user_id=owner)
