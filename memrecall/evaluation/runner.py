"""A run: the corpus is stored, every question is asked, every answer is written down at once."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from memrecall.errors import InvalidArgument
from memrecall.evaluation.asking import Asker
from memrecall.evaluation.corpus import Corpus, Subject, count_hidden, fill
from memrecall.evaluation.folder import Run, RunFolder, State
from memrecall.evaluation.metrics import summarise
from memrecall.evaluation.questions import Question, QuestionSet

Advance = Callable[[int], None]


class Runner:
    """Carries one run on from wherever it stands."""

    def __init__(self, folder: RunFolder, state: State, corpus: Corpus, asked: QuestionSet) -> None:
        self.folder = folder
        self.state = state
        self.corpus = corpus
        self._asked = asked
        self._zones: dict[str, str] = {}

    @property
    def questions(self) -> int:
        """How many are to be asked in all."""
        return len(self._asked.questions)

    async def store_corpus(self, subject: Subject, advance: Advance) -> None:
        """Store the corpus, unless this run has done so already."""
        database = subject.store.facts.database_id
        if self.state.database_id != database:
            await _require_empty(subject)
            self.state.database_id, self.state.imported = database, False
            self.folder.save(self.state)
        if not self.state.imported:
            await fill(subject, self.corpus, advance)
            self.state.imported = True
            self.folder.save(self.state)

    async def use_stored(self, subject: Subject) -> None:
        """Ask what an earlier run stored; a database with more or less in it is refused."""
        counts = await subject.store.count()
        held = (counts["messages"], counts["memories"])
        wanted = (len(self.corpus.messages), len(self.corpus.memories))
        if held != wanted:
            raise InvalidArgument(
                f"{subject.store.place} holds {held[0]} messages and {held[1]} memories, "
                f"the corpus {wanted[0]} and {wanted[1]}",
                hint="Leave out stored, with a database of its own",
            )
        self.state.database_id, self.state.imported = subject.store.facts.database_id, True
        self.folder.save(self.state)

    async def ask_all(self, subject: Subject, asker: Asker, advance: Advance) -> None:
        """Ask what has not been asked."""
        done = self.folder.mend()
        advance(done)
        for question in self._asked.questions[done:]:
            await self._set_zone(subject, question)
            started = time.perf_counter()
            answer = await asker.ask(question)
            self.folder.append(answer, time.perf_counter() - started)
            advance(1)

    def sum_up(self) -> Run:
        """Write the summary of what there is, also of a run that was stopped."""
        self.folder.mend()
        run = self.folder.read()
        state = self.state
        state.complete = len(run.answers) == len(self._asked.questions)
        state.counts = self._count(run)
        state.metrics = summarise(run.questions, run.answers, run.seconds)
        self.folder.save(state)
        if state.complete:
            self.folder.drop_database()
        return self.folder.read()

    def _count(self, run: Run) -> dict[str, int]:
        recalled = [answer.recalled for answer in run.answers if answer.recalled]
        return {
            "messages": len(self.corpus.messages),
            "memories": len(self.corpus.memories),
            "users": len(self.corpus.keys),
            "questions": len(self._asked.questions),
            "answered": len(run.answers),
            "unanswerable": sum(not question.answerable for question in run.questions),
            "evidence_hidden_by_as_of": count_hidden(self._asked, self.corpus, datetime.now(UTC)),
            "fallbacks": sum(result.fallback is not None for result in recalled),
        }

    async def _set_zone(self, subject: Subject, question: Question) -> None:
        """Let the question's user live where the question says."""
        zone = question.time_zone or "UTC"
        if self._zones.get(question.user_id) != zone:
            await subject.store.owners.set_time_zone(question.user_id, zone)
            self._zones[question.user_id] = zone


async def _require_empty(subject: Subject) -> None:
    counts = await subject.store.count()
    if counts["messages"] or counts["memories"]:
        raise InvalidArgument(
            f"{subject.store.place} is not empty: it holds {counts['messages']} messages "
            f"and {counts['memories']} memories",
            hint="An evaluation needs a database of its own",
        )
