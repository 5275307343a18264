"""The context of a tool call.

It has a library and a scope that trusted code binds, never arguments.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memrecall.agent.result import RecallResult
from memrecall.errors import Disabled, InvalidArgument
from memrecall.library.knowledge import KnowledgeBase
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.store import PlanOutcome, PlanStep
from memrecall.text.privacy import DetectedKinds
from memrecall.types import Language, NewMemory, Origin

RecallFunction = Callable[..., Awaitable[RecallResult]]
RememberFunction = Callable[[Scope, NewMemory], Awaitable[list[PlanOutcome]]]

NO_USER = "memory tools"  # the user id of a scope without a user: knowledge belongs to an agent


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """A library, a scope and the rights of one caller."""

    library: Library
    scope: Scope
    has_user: bool = True  # False: only tools that need no user can run
    can_write: bool = True
    write_spaces: frozenset[str] | None = None  # of the scope's; None: as far as roles allow
    is_trusted: bool = False  # whether errors of the environment are reported in full
    actor: str = "assistant"  # recorded in the history of what the tools change
    language: Language = "en"
    recall: RecallFunction | None = None
    # Also recognises the same fact in other words and replaces what a new one contradicts.
    remember: RememberFunction | None = None

    @classmethod
    def for_operator(cls, library: Library, agent_id: str | None = None) -> "ToolContext":
        """Return a context with every right and no user, for whoever runs the process."""
        rights = frozenset({Permission.KNOWLEDGE, Permission.OPERATOR})
        scope = Scope(NO_USER, agent_id, permissions=rights)
        return cls(library=library, scope=scope, has_user=False, is_trusted=True)

    def allows(self, permission: Permission) -> bool:
        """Return True if the scope has a permission; an operator may change knowledge too."""
        if permission is Permission.KNOWLEDGE and self.scope.allows(Permission.OPERATOR):
            return True
        return self.scope.allows(permission)

    def bound_spaces(self, *, writes: bool) -> list[str]:
        """Return the spaces that the tools may read, or write."""
        if writes and self.write_spaces is not None:
            return sorted(self.write_spaces)
        return sorted(self.scope.spaces)

    async def enter(self, space_id: str, *, writes: bool = False) -> Scope:
        """Return the scope of a bound space; InvalidArgument if it is not bound for this."""
        if space_id not in (spaces := self.bound_spaces(writes=writes)):
            verb, hint = "write to" if writes else "read", f"Bound: {', '.join(spaces) or 'none'}"
            raise InvalidArgument(f"this client cannot {verb} space {space_id[:80]!r}", hint=hint)
        return await self.library.store.spaces.enter(self.scope, space_id)

    async def resolve_write(self, key: str) -> tuple[Scope, str]:
        """Return the scope of a row to change, and its key there."""
        space_id, plain = self.scope.split_key(key)
        own = self.scope.own
        return own if space_id is None else await self.enter(space_id, writes=True), plain

    async def recall_messages(self, messages: object, time: str | None = None) -> RecallResult:
        """Recall what the last message refers to, within the limits of the interface."""
        if self.recall is None:
            raise Disabled("this interface does not support recall", hint="Use MCP or HTTP")
        return await self.recall(messages, time=time)

    async def add_memory(self, memory: NewMemory) -> list[PlanOutcome]:
        """Store a memory that a model wrote, unless it is known; the first outcome is its own."""
        if self.remember is not None:
            return await self.remember(self.scope, memory)
        # The origin says who wrote it, whatever the text claims.
        step = PlanStep("ADD", memory, origin=Origin.ASSISTANT)
        return await self.library.apply_plan(self.scope, [step], actor=self.actor)

    def redacted_kinds(self, *texts: str) -> list[str]:
        """Return the kinds of data in texts that are not stored."""
        found = DetectedKinds()
        for text in texts:
            self.library.store.database.privacy.redact(text, found)
        return [*found.redacted]

    @property
    def knowledge(self) -> KnowledgeBase:
        """The knowledge base of the agent."""
        return KnowledgeBase(self.library, self.agent_scope)

    @property
    def agent_scope(self) -> Scope:
        """The scope of what all users of the agent share."""
        rights = {Permission.KNOWLEDGE} if self.allows(Permission.KNOWLEDGE) else set()
        return Scope(NO_USER, self.scope.agent_id, permissions=frozenset(rights))
