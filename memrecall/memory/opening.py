"""What an `AsyncMemory` is made of, put together when it is first used."""

from dataclasses import dataclass
from typing import Any

from memrecall.memory.adding import Adder
from memrecall.memory.extraction import Extractor, ModelExtractor, RuleExtractor
from memrecall.memory.learning import Learner
from memrecall.memory.library import Library
from memrecall.memory.processing import Processes
from memrecall.memory.recall_marks import RecallMarks
from memrecall.memory.recalling import client_of
from memrecall.settings import Settings


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


def make_extractor(settings: Settings, client: Any = None) -> Extractor:
    """A model when one is given or configured, the rules otherwise."""
    model = client or client_of(settings)
    return RuleExtractor() if model is None else ModelExtractor(model)
