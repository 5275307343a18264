"""What a tool works with: a library, an agent's knowledge, and folders that are made when needed.

A desk is made by trusted code, for one principal: what it may do is decided before a tool runs.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memrecall import __version__
from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.restore import Backups
from memrecall.store.workspaces import Workspaces, retry_while_busy

Result = TypeVar("Result")

_NOBODY = "memory tools"  # knowledge is an agent's: no user has a part in it
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ToolService:
    """One principal's place at the tools."""

    library: Library
    agent_id: str | None = None
    may_write: bool = True
    may_change_knowledge: bool = True
    is_operator: bool = True

    @property
    def knowledge(self) -> KnowledgeBase:
        """What the agent knows."""
        return KnowledgeBase(self.library, self._scope())

    @property
    def root(self) -> Path:
        """Where workspaces lie."""
        return self._folder(self.library.settings.workspaces_dir, "workspaces")

    async def in_workspaces(self, work: Callable[[Workspaces], Result]) -> Result:
        """Do something there, in a thread, when backups and restores let us.

        A restore that was cut short is finished or undone first.
        """
        spaces = await asyncio.to_thread(self._open_workspaces)
        await self._vault(spaces).recover()
        return await retry_while_busy(lambda: work(spaces), self.library.settings.lock_timeout)

    async def vault(self) -> Backups:
        """The backups."""
        return self._vault(await asyncio.to_thread(self._open_workspaces))

    async def recover(self) -> None:
        """Finish or undo what an earlier process left; makes nothing where there is nothing."""
        if await asyncio.to_thread(self.root.is_dir):
            await self._vault(await asyncio.to_thread(self._open_workspaces)).recover()

    def _open_workspaces(self) -> Workspaces:
        return Workspaces(self.root)

    def _vault(self, spaces: Workspaces) -> Backups:
        settings = self.library.settings
        folder = BackupFolder(
            self._folder(settings.backups_dir, "backups"), settings.backup_mb * _MEGABYTE
        )
        scope = self._scope()
        store, timeout = self.library.store, settings.lock_timeout
        return Backups(store, scope, spaces, folder, software=__version__, lock_timeout=timeout)

    def _scope(self) -> Scope:
        may = self.may_change_knowledge or self.is_operator
        granted = {Permission.KNOWLEDGE} if may else set()
        return Scope(_NOBODY, self.agent_id, permissions=frozenset(granted))

    def _folder(self, setting: str, name: str) -> Path:
        """The folder of the settings; else beside a SQLite file, or in the data folder."""
        if setting:
            return Path(setting)
        store = self.library.store
        if store.file is not None:
            return store.file.with_name(f"{store.file.name}-{name}")
        return Path(self.library.settings.runs_dir).parent / store.facts.database_id / name
