"""Tools with which a parent agent keeps a user's memories: remember, recall, correct, forget.

The user is bound when they are made: no argument names one. What they write says of itself that an
assistant wrote it (its origin), whatever the text claims, and nothing they do is beyond undoing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memrecall.agent.autogen.recall_tool import RecallTool
from memrecall.agent.driver import RecallOptions
from memrecall.agent.prompt_view import to_json
from memrecall.errors import MemrecallError, NotFound
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import PlanStep
from memrecall.types import LABEL_LENGTH, MemoryRecord, NewMemory, Origin

ACTOR = "assistant"
LONGEST_TEXT = 4_000
_SIMILAR = 3
_SIMILAR_SCORE = 0.5

Redact = Callable[[str], str]


class _Arguments(BaseModel):
    """The user is fixed: an argument that names one is refused."""

    model_config = ConfigDict(extra="forbid")


class RememberArguments(_Arguments):
    """Arguments of `remember`."""

    text: str = Field(
        min_length=1,
        max_length=LONGEST_TEXT,
        description="One fact, as a sentence that can be understood without this conversation",
    )
    memory_type: str = Field(
        default="general",
        min_length=1,
        max_length=LABEL_LENGTH,
        description="What kind it is: user_preference, user_profile, plan, event, instruction …",
    )


class CorrectArguments(_Arguments):
    """Arguments of `correct`."""

    memory_key: str = Field(description="The memory that is wrong, by its key from recall")
    text: str = Field(min_length=1, max_length=LONGEST_TEXT, description="What is right instead")
    reason: str = Field(default="", max_length=500, description="Why, in a few words")


class ForgetArguments(_Arguments):
    """Arguments of `forget`."""

    memory_key: str = Field(description="The memory to forget, by its key from recall")
    reason: str = Field(default="", max_length=500, description="Why, in a few words")


class KeptAnswer(BaseModel):
    """What the parent's model gets: what was done, or why nothing was."""

    done: bool
    memory_key: str | None = None
    note: str = ""
    similar: list[dict[str, str]] = []


class _KeeperTool(BaseTool[Any, KeptAnswer], ABC):
    """One write to one user's memories. A cancelled parent does not tear a write in two."""

    def __init__(
        self,
        arguments: type[_Arguments],
        name: str,
        description: str,
        keeper: Library,
        scope: Scope,
        redact: Redact | None,
    ) -> None:
        super().__init__(arguments, KeptAnswer, name, description)
        self._keeper = keeper
        self._scope = scope
        self._redact = redact or str

    async def run(self, args: Any, cancellation_token: CancellationToken) -> KeptAnswer:
        """Do it; what went wrong is an answer too, because a parent waits for one."""
        try:
            return await self._keep(args)
        except NotFound:
            return KeptAnswer(done=False, note="There is no such memory; recall gives the keys.")
        except ValidationError:
            return KeptAnswer(done=False, note="Nothing was changed: the text cannot be stored")
        except MemrecallError as error:
            return KeptAnswer(done=False, note=f"Nothing was changed: {error.message}")

    @abstractmethod
    async def _keep(self, args: Any) -> KeptAnswer: ...

    def return_value_as_string(self, value: KeptAnswer) -> str:
        """The answer as JSON, letters as they are."""
        return to_json(value.model_dump(exclude_defaults=True))

    async def _find(self, memory_key: str) -> MemoryRecord:
        return await self._keeper.store.memories(self._scope).get(memory_key)


class RememberTool(_KeeperTool):
    """Keeps one fact; the same fact again is kept once."""

    async def _keep(self, args: RememberArguments) -> KeptAnswer:
        text = self._redact(args.text.strip())
        memory = NewMemory(content=text, memory_type=args.memory_type)
        request = SearchRequest(text, limit=_SIMILAR, kind="memory", threshold=_SIMILAR_SCORE)
        known = await self._keeper.search(self._scope, request)
        step = PlanStep("ADD", memory, origin=Origin.ASSISTANT)
        (outcome,) = await self._keeper.apply_plan(self._scope, [step], actor=ACTOR)
        if outcome.event == "NONE":
            return KeptAnswer(done=True, memory_key=outcome.memory_key, note="It was known already")
        similar = [{"memory_key": hit.key, "content": hit.content} for hit in known.results]
        note = "If one of the similar ones is now wrong, correct or forget it" if similar else ""
        return KeptAnswer(done=True, memory_key=outcome.memory_key, note=note, similar=similar)


class CorrectTool(_KeeperTool):
    """Puts what is right in the place of what is wrong; the old stays readable in the history."""

    async def _keep(self, args: CorrectArguments) -> KeptAnswer:
        old = await self._find(args.memory_key)
        if old.superseded_by is not None:
            note = "It was replaced already, by the memory of this key"
            return KeptAnswer(done=False, memory_key=old.superseded_by, note=note)
        new = NewMemory(
            content=self._redact(args.text.strip()),
            memory_type=old.memory_type,
            layer=old.layer,
            metadata=old.metadata,
            sensitive=old.sensitive,
            subject=old.subject,
            field=old.field,
            pinned=old.pinned,
        )
        step = PlanStep("UPDATE", new, old.memory_key, Origin.ASSISTANT, self._redact(args.reason))
        (outcome,) = await self._keeper.apply_plan(self._scope, [step], actor=ACTOR)
        if outcome.event == "NONE":
            return KeptAnswer(done=False, memory_key=outcome.memory_key, note="It says so already")
        note = f"It took the place of {old.memory_key}"
        return KeptAnswer(done=True, memory_key=outcome.memory_key, note=note)


class ForgetTool(_KeeperTool):
    """Hides a memory; its user can have it brought back."""

    async def _keep(self, args: ForgetArguments) -> KeptAnswer:
        old = await self._find(args.memory_key)
        changes = self._keeper.store.changes(self._scope)
        await changes.delete([old.memory_key], actor=ACTOR, reason=self._redact(args.reason))
        return KeptAnswer(done=True, memory_key=old.memory_key)


def memory_tools(
    library: Library,
    scope: Scope,
    *,
    model_client: ChatCompletionClient | None = None,
    options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
    redact: Redact | None = None,
) -> list[Any]:  # of tools: an agent's own list of them takes functions too
    """Tools for a parent agent to keep one user's memories: remember, recall, correct, forget.

    `redact` sees every text before it is stored. `model_client` and `options` are for `recall`.
    """
    given = (library, scope, redact)
    return [
        RememberTool(RememberArguments, "remember", _REMEMBER, *given),
        RecallTool(library, scope, model_client=model_client, options=options),
        CorrectTool(CorrectArguments, "correct", _CORRECT, *given),
        ForgetTool(ForgetArguments, "forget", _FORGET, *given),
    ]


_REMEMBER = (
    "Keep something about the user for later conversations, when the user asks for it or when it "
    "will plainly matter again. One fact a call; not small talk, and not what recall has told you."
)
_CORRECT = (
    "A memory that recall gave is wrong or out of date: put what is right in its place. Only for "
    "keys of memories; messages are evidence and are never changed."
)
_FORGET = "Forget a memory that recall gave, because the user asks for it or it is wrong."
