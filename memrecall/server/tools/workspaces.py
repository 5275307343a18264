"""The tools of workspaces and of backups."""

from memrecall.server.tools.desk import ToolService
from memrecall.server.tools.models import (
    BackedUp,
    Cleaned,
    NoParams,
    Restored,
    RestoreParams,
    TaskParams,
    Workspace,
)


async def init_workspace(desk: ToolService, params: TaskParams) -> Workspace:
    """Make a workspace."""
    path = await desk.in_workspaces(lambda spaces: spaces.create(params.task_id))
    return Workspace(path=str(path))


async def cleanup(desk: ToolService, params: TaskParams) -> Cleaned:
    """Remove a workspace."""
    path = await desk.in_workspaces(lambda spaces: spaces.remove(params.task_id))
    return Cleaned(path=str(path))


async def backup(desk: ToolService, _params: NoParams) -> BackedUp:
    """Save everything."""
    path = await (await desk.vault()).backup()
    return BackedUp(message="Backup successful.", backup_path=str(path))


async def restore(desk: ToolService, params: RestoreParams) -> Restored:
    """Bring a saved state back."""
    former = await (await desk.vault()).restore(params.backup_path)
    while await desk.knowledge.embed_pending():
        pass
    message = f"从 {params.backup_path} 恢复成功"  # the specification's own words
    return Restored(message=message, former_state=str(former))
