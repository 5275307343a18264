"""The context of a tool call, and the tools of a chat turn.

A context has a library and a scope that trusted code binds, never arguments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import StringConstraints

from memrecall import __version__
from memrecall.agent.result import RecallResult
from memrecall.agent.tools import IS_MENTIONED, OTHER_MESSAGES
from memrecall.agent.tools.models import TextAnswer, ToolInput
from memrecall.errors import Disabled, InvalidArgument, MemrecallError
from memrecall.library.knowledge import KnowledgeBase
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.store import PlanOutcome, PlanStep
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.restore import Backups
from memrecall.store.workspaces import Workspaces, retry_while_busy
from memrecall.text.privacy import DetectedKinds
from memrecall.types import Language, NewMemory, Origin

Result = TypeVar("Result")
RecallFunction = Callable[..., Awaitable[RecallResult]]
RememberFunction = Callable[[Scope, NewMemory], Awaitable[list[PlanOutcome]]]

NO_USER = "memory tools"  # the user id of a scope without a user: knowledge belongs to an agent
MAX_QUERY = 1_000


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
        return KnowledgeBase(self.library, self._agent_scope())

    async def has_shared_data(self) -> bool:
        """Return True if there is knowledge or a workspace, or the caller may add knowledge."""
        if self.allows(Permission.KNOWLEDGE) or await self.knowledge.page(limit=1):
            return True
        try:
            return bool(await self.workspace_names())
        except MemrecallError:  # of the folder; the status tells more
            return True

    async def workspace_names(self) -> list[str]:
        """Return the tasks that have a workspace; creates no folder."""
        if not await asyncio.to_thread(self.workspaces_root.is_dir):
            return []
        return await self.in_workspaces(lambda workspaces: workspaces.names())

    @property
    def workspaces_root(self) -> Path:
        """The folder of the workspaces."""
        return self._folder("workspaces")

    async def in_workspaces(self, work: Callable[[Workspaces], Result]) -> Result:
        """Run a function on the workspaces in a thread, between backups and restores.

        An interrupted restore is finished or undone first.
        """
        workspaces = await asyncio.to_thread(Workspaces, self.workspaces_root)
        await self._open_backups(workspaces).recover()
        return await retry_while_busy(lambda: work(workspaces))

    async def open_backups(self) -> Backups:
        """Return the backups of the knowledge base and the workspaces."""
        return self._open_backups(await asyncio.to_thread(Workspaces, self.workspaces_root))

    async def recover(self) -> None:
        """Finish or undo an interrupted restore; creates no folder."""
        if await asyncio.to_thread(self.workspaces_root.is_dir):
            await (await self.open_backups()).recover()

    def _open_backups(self, workspaces: Workspaces) -> Backups:
        return Backups(
            self.library.store,
            self._agent_scope(),
            workspaces,
            BackupFolder(self._folder("backups")),
            software=__version__,
        )

    def _agent_scope(self) -> Scope:
        rights = {Permission.KNOWLEDGE} if self.allows(Permission.KNOWLEDGE) else set()
        return Scope(NO_USER, self.scope.agent_id, permissions=frozenset(rights))

    def _folder(self, name: str) -> Path:
        """Return a folder in the configured one, else next to the SQLite file."""
        store, settings = self.library.store, self.library.settings
        if settings.data_dir:
            return Path(settings.data_dir) / name
        if store.file is not None:
            return store.file.with_name(f"{store.file.name}-{name}")
        return settings.data_folder() / store.facts.database_id / name


@dataclass(slots=True, kw_only=True)
class TurnContext(ToolContext):
    """The context of one chat turn."""

    recall_query: Callable[[str], Awaitable[TextAnswer]]  # counted against the cap of the turn
    answers: Mapping[str, TextAnswer] = field(default_factory=dict)  # of tools without arguments


class ChatRecallArguments(ToolInput):
    """Arguments of `recall_memory`."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class NoArguments(ToolInput):
    """Arguments of the tools that take none."""


async def recall_memory(context: TurnContext, arguments: ChatRecallArguments) -> TextAnswer:
    """Recall within the cap of the turn."""
    return await context.recall_query(arguments.query[:MAX_QUERY])


async def get_other_members_messages(context: TurnContext, _: NoArguments) -> TextAnswer:
    """Return what the other members of the group wrote since the speaker's last message."""
    return context.answers[OTHER_MESSAGES]


async def is_mentioned(context: TurnContext, _: NoArguments) -> TextAnswer:
    """Return whether the speaker is mentioned in this turn."""
    return context.answers[IS_MENTIONED]
