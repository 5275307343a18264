"""`spaces`: data that several users share, their members, and who can see what."""

from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import output
from memrecall.cli.memories import MemoryId
from memrecall.cli.options import After, CommandGroup, SpaceRoleOption, UserOptions

SpaceId = Annotated[str, Argument(metavar="SPACE", help="Space id, such as team-x.")]
MemberId = Annotated[str, Argument(metavar="MEMBER", help="User id, or key: and a key's id.")]
ShownName = Annotated[str | None, Option(help="Name that people see.")]
Description = Annotated[str, Option("--description", help="What the space is for.")]
HitId = Annotated[str, Argument(help="Id of a memory, a message or the trace of a recall.")]

_SPACE, _ENTRY = "{space_id:<24} {role:<11} {name}", "{at:.16} {action:<8} {target}"

space_commands = CommandGroup(help="Share spaces: create, members, promote, who can see what.")


def _line(text: str, note: str = "") -> str:
    return output.escape(text.rstrip()) + (f"  [dim]{output.escape(note)}[/dim]" if note else "")


@space_commands.command("create")
def create(
    space: SpaceId, shared: UserOptions, name: ShownName = None, about: Description = ""
) -> None:
    """Create a space, of which the user becomes the first admin."""
    fields = {"name": name or space, "description": about}
    created = shared.with_memory(lambda memory: memory.create_space(space, **fields), create=True)
    shared.print_outcome(_line(f"space {space} created"), created)


@space_commands.command("list")
def list_all(shared: UserOptions) -> None:
    """List a user's spaces, with the role in each."""
    items = shared.with_memory(lambda memory: memory.spaces())
    lines = [_line(_SPACE.format_map(item), item["description"]) for item in items]
    shared.print_page({"items": items}, lines, empty="no spaces")


@space_commands.command("members")
@space_commands.command("grants")
def list_grants(space: SpaceId, shared: UserOptions) -> None:
    """List the members and keys of a space: role, since when, granted by whom."""
    items = shared.with_memory(lambda memory: memory.space(space).grants())
    shared.print_page({"items": items}, map(_describe_grant, items))


def _describe_grant(item: dict[str, Any]) -> str:
    by = _describe_granter(item["granted_by"])
    text = f"{item['member']:<24} {item['role']:<11} {item['name'] or ''}"
    verb = "invited" if item["status"] == "invited" else "since"
    return _line(text, f"{verb} {output.minute_of(item['since'])}{by}")


def _describe_granter(member: str | None) -> str:
    return {None: "", "*": ", by an operator"}.get(member or None, f", by {member}")


@space_commands.command("add")
def add_member(
    space: SpaceId,
    member: MemberId,
    shared: UserOptions,
    role: SpaceRoleOption = "reader",
    name: ShownName = None,
    invite: Annotated[bool, Option("--invite", help="Ask the user, who has to accept.")] = False,
) -> None:
    """Add a member, or change their role or name."""
    fields: Any = {"name": name, "invite": invite}
    result = shared.with_memory(lambda m: m.space(space).set_member(member, role, **fields))
    verb = "is invited as" if result["status"] == "invited" else "is"
    shared.print_outcome(_line(f"{member} {verb} {role} of {space}"), result)


@space_commands.command("invitations")
def show_invitations(shared: UserOptions) -> None:
    """List the spaces that the user is invited to."""
    items = shared.with_memory(lambda memory: memory.invitations())
    notes = (
        f"{output.minute_of(i['invited_at'])}{_describe_granter(i['invited_by'])}" for i in items
    )
    lines = [_line(_SPACE.format_map(i), note) for i, note in zip(items, notes, strict=True)]
    shared.print_page({"items": items}, lines, empty="no invitations")


@space_commands.command("accept")
def accept(space: SpaceId, shared: UserOptions) -> None:
    """Join a space that the user is invited to."""
    joined = shared.with_memory(lambda memory: memory.accept_invitation(space))
    shared.print_outcome(_line(f"{joined['role']} of {space}"), joined)


@space_commands.command("decline")
def decline(space: SpaceId, shared: UserOptions) -> None:
    """Decline to join a space that the user is invited to."""
    shared.with_memory(lambda memory: memory.decline_invitation(space))
    fields = {"space_id": space, "declined": True}
    shared.print_outcome(_line(f"the invitation to {space} is declined"), fields)


@space_commands.command("remove")
def remove_member(space: SpaceId, member: MemberId, shared: UserOptions) -> None:
    """Remove a member, withdraw an invitation, or leave; what they wrote stays."""

    async def remove(memory: Any) -> bool:
        inside = memory.space(space)
        invited = [g["member"] for g in await inside.grants() if g["status"] == "invited"]
        await inside.remove_member(member)
        return member in invited

    is_withdrawn = shared.with_memory(remove)
    fields = {"space_id": space, "member": member, "removed": True}
    text = f"the invitation of {member} to {space} is withdrawn"
    text = text if is_withdrawn else f"{member} is no longer a member of {space}"
    shared.print_outcome(_line(text), fields)


@space_commands.command("promote")
def promote(memory_id: MemoryId, space: SpaceId, shared: UserOptions) -> None:
    """Copy one of the user's memories, with its messages, to a space."""
    result = shared.with_memory(lambda memory: memory.promote(memory_id, space))
    shared.print_outcome(_line(f"shared as {result['id']}"), result)


@space_commands.command("demote")
def demote(memory_id: MemoryId, space: SpaceId, shared: UserOptions) -> None:
    """Erase a copy that the user promoted to a space."""
    result = shared.with_memory(lambda memory: memory.demote(memory_id, space))
    shared.print_outcome(_line(f"{result['id']} is no longer shared"), result)


@space_commands.command("audit")
def audit(space: SpaceId, shared: UserOptions, after: After = "") -> None:
    """List who changed what in a space, latest first, without contents."""
    items = shared.with_memory(lambda memory: memory.space(space).audit(after=after or None))
    lines = [_line(_ENTRY.format_map(item), f"by {item['actor']}") for item in items]
    shared.print_page({"items": items}, lines)


@space_commands.command("who-can-see")
def show_readers(memory_id: MemoryId, shared: UserOptions) -> None:
    """List who can read a memory or message."""
    result = shared.with_spaces(lambda memory: memory.who_can_see(memory_id))
    owner = _line(f"{result['owner']['kind']} {result['owner']['id']}")
    keys = [_line(f"key {key['key_id']}", key["name"]) for key in result["keys"]]
    shared.print_page(result, [owner, *map(_describe_grant, result["members"]), *keys])


@space_commands.command("why")
def explain_access(key: HitId, shared: UserOptions) -> None:
    """Explain why the user can read a memory or message, or the items of a recall."""
    items = shared.with_spaces(lambda memory: memory.why_seen(key))
    lines = [_line(f"{i['id']}  {i['reason']}", i.get("since", "")) for i in items]
    shared.print_page({"items": items}, lines, empty="nothing was recalled")


@space_commands.command("delete")
def delete_space(space: SpaceId, shared: UserOptions, name: ShownName = None) -> None:
    """Erase a space with everything in it; asks for its name, unless --name confirms it."""
    typed = name or typer.prompt(f"To erase {space} permanently, type its name", err=True)
    erased = shared.with_memory(lambda memory: memory.space(space).delete_space(name=typed))
    shared.print_outcome(_line(f"space {space} erased"), {"space_id": space, **erased})
