"""What an `AsyncMemory` is made of, put together when it is first used."""

import asyncio
from dataclasses import dataclass
from typing import Any

from memrecall.memory.adding import Adder
from memrecall.memory.conversations import Redact
from memrecall.memory.extraction.protocol import Extractor
from memrecall.memory.jobs import Jobs
from memrecall.memory.learning import Learner
from memrecall.memory.library import Library
from memrecall.memory.processing import Processes
from memrecall.memory.recall_marks import RecallMarks
from memrecall.memory.recalling import client_of
from memrecall.memory.reranking import Reranker, make_reranker
from memrecall.memory.schedule import Schedule
from memrecall.memory.short_term import ShortTermMemory
from memrecall.settings import Settings

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
    from memrecall.memory.extraction import ModelExtractor, RuleExtractor

    model = client or client_of(settings)
    return RuleExtractor() if model is None else ModelExtractor(model)
