"""`chat`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.cli.prompt import input_lines, is_typed, show_logs
from memrecall.errors import InvalidArgument, MemrecallError

_PROMPT = "you: "
_BROUGHT_BACK = 50  # messages of the session whose lines can be brought back


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("chat")(chat)


def chat(
    message: Annotated[
        str | None, typer.Argument(help="What the user says; without it, line by line.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Who talks.", show_default=False)
    ] = None,
    group: Annotated[
        Path | None,
        typer.Option("--group", help="A group instead: a JSON file with members and messages."),
    ] = None,
    speaker: Annotated[
        str | None,
        typer.Option("--as", help="Talk on in the group as this member, line by line."),
    ] = None,
    db: options.Db = None,
    session: Annotated[
        str | None, typer.Option("--session", help="The session it is said in.")
    ] = None,
    agent: options.Agent = None,
    instructions: Annotated[
        str, typer.Option("--instructions", help="Who the assistant is, for its model.")
    ] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the log too, on the error stream.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Talk to an assistant that recalls, and see its tool calls while it answers.

    By the model of the settings, or by rules where none is set. What is said is stored.
    """
    if (user is None) == (group is None):
        raise InvalidArgument("somebody must talk", hint="Give --user U, or --group FILE")
    show_logs(verbose)
    if group is not None:
        if message is not None or instructions:
            raise InvalidArgument(
                "a group has its messages and instructions in its file",
                hint="Leave out the message and --instructions",
            )
        _play_group(group, speaker, db, session, agent, json)
        return
    if speaker is not None:
        raise InvalidArgument("--as names a member of a group", hint="Give --group FILE too")
    if message is not None and not message.strip():
        raise InvalidArgument("the message is empty", hint="Say something")
    scope = _scope(str(user), agent, session)
    with _opened(db) as (runner, library, given):
        from memrecall.chat import SingleChat

        talk = SingleChat(library, scope, instructions=instructions, **given)
        if message is not None:
            _show(runner, talk.stream(message), json)
        else:
            for line in input_lines(_PROMPT, _said_before(runner, library, scope)):
                _survive(partial(_show, runner, talk.stream(line), json), json)


def _said_before(
    runner: asyncio.Runner, library: Any, scope: Any, member_id: str | None = None
) -> list[str]:
    """What whoever types has said in the session already, if there is somebody who types."""
    if not is_typed():
        return []
    from memrecall.chat.history import MEMBER_ID
    from memrecall.scope import DEFAULT_NAME

    session = scope.session_id or DEFAULT_NAME
    reading = library.store.timeline(scope).thread(session_id=session, limit=_BROUGHT_BACK)
    return [
        message.content
        for message in runner.run(reading)
        if message.metadata.get(MEMBER_ID) == member_id and (member_id or message.role == "user")
    ]


def _survive(turn: Callable[[], None], json: bool) -> None:
    """Play a turn; what fails is told, and the talk goes on. So does it after one Ctrl-C."""
    try:
        turn()
    except KeyboardInterrupt:
        if not is_typed():
            raise
        typer.echo("stopped; Ctrl-C again, or Ctrl-D, ends the chat", err=True)
    except MemrecallError as error:
        if json:
            typer.echo(output.as_json({"error": {"code": error.code, "message": str(error)}}))
        else:
            typer.echo(f"error: {error} [{error.code}]", err=True)


def _play_group(
    file: Path,
    speaker: str | None,
    db: str | None,
    session: str | None,
    agent: str | None,
    json: bool,
) -> None:
    from memrecall.cli.group_file import GroupMessage, read_group

    group = read_group(file)
    talking = [speaker] if speaker is not None else []
    with _opened(db) as (runner, library, given):
        from memrecall.chat import GroupChat

        scope = _scope(group.group_id, agent, session)
        talk = GroupChat(library, scope, group.members, **given)
        for member_id in (*group.who_answers, *(said.speaker for said in group.messages), *talking):
            talk.members.get(member_id)  # a stranger is a mistake before anything is stored
        posted = [runner.run(_post(talk, said, json)) for said in group.messages]
        turns = [] if talking else _answers(runner, talk, group.who_answers, json)
        if json:
            output.print_json({"group_id": group.group_id, "posted": posted, "turns": turns})
        if speaker is not None:
            others = [member_id for member_id in group.who_answers if member_id != speaker]
            member = talk.members.get(speaker)
            earlier = _said_before(runner, library, scope, speaker)
            for line in input_lines(f"{output.printable(member.name)}: ", earlier):
                said = GroupMessage(speaker=speaker, content=line)
                _survive(partial(_reply_in_group, runner, talk, said, others, json), json)


def _reply_in_group(
    runner: asyncio.Runner, talk: Any, said: Any, who_answers: list[str], json: bool
) -> None:
    """What a person says in a group, and what the members answer to it."""
    posted = runner.run(_post(talk, said, quiet=True))
    turns = _answers(runner, talk, who_answers, json)
    if json:
        output.print_json({"posted": [posted], "turns": turns})


def _answers(
    runner: asyncio.Runner, talk: Any, who_answers: list[str], quiet: bool
) -> list[dict[str, Any]]:
    """The turns of the members, one after another; one with nothing to answer is passed over."""
    from memrecall.chat import NothingToAnswer

    turns = []
    for member_id in who_answers:
        name = talk.members.get(member_id).name
        try:
            told = _events(runner, talk.stream(member_id), quiet, name)
        except NothingToAnswer:
            told = {"answer": None, "events": []}
            if not quiet:
                line = f"[dim]  {output.escape(name)} has nothing new to answer[/dim]"
                output.console().print(line)
        turns.append({"member_id": member_id, **told})
    return turns


async def _post(talk: Any, said: Any, quiet: bool) -> dict[str, Any]:
    posted = await talk.post(
        said.speaker,
        said.content,
        mentions=said.mentions,
        message_id=said.message_id,
        ts=said.ts,
    )
    if not quiet:
        name = output.escape(talk.members.get(said.speaker).name)
        output.console().print(f"[bold]{name}:[/bold] {output.escape(said.content)}")
    return {"message_id": posted.message_id, "mentions": list(posted.mentions)}


def _show(runner: asyncio.Runner, events: AsyncGenerator[Any, None], json: bool) -> None:
    told = _events(runner, events, json)
    if json:
        output.print_json(told)


def _events(
    runner: asyncio.Runner, events: AsyncGenerator[Any, None], quiet: bool, speaker: str = ""
) -> dict[str, Any]:
    """Play a turn, drawing it unless it is to be quiet; its events and its end."""
    from memrecall.chat import Failed
    from memrecall.cli.output import usable_width
    from memrecall.cli.views.chat import TurnDrawing

    terminal = output.console()
    drawing = TurnDrawing(terminal, usable_width(terminal.width), speaker)

    async def play() -> dict[str, Any]:
        told: list[dict[str, Any]] = []
        async for event in events:
            if isinstance(event, Failed):
                raise event.error
            told.append(event.as_dict())
            if not quiet:
                drawing.draw(event)
        *before, end = told
        del end["type"]
        return {"answer": end, "events": before}

    try:
        return runner.run(play())
    except (KeyboardInterrupt, MemrecallError):
        drawing.break_off()
        raise


def _scope(user: str, agent: str | None, session: str | None) -> Any:
    from memrecall.scope import Scope

    return Scope(user, agent, session)


@contextmanager
def _opened(db: str | None) -> Iterator[tuple[asyncio.Runner, Any, dict[str, Any]]]:
    """One event loop for all turns, the library, and what the chats are given beside it."""
    with asyncio.Runner() as runner:
        library = runner.run(_open(db))
        try:
            given = _given(library.settings)
            try:
                yield runner, library, given
            finally:
                if given["model_client"] is not None:
                    runner.run(given["model_client"].close())
        finally:
            runner.run(library.close())


async def _open(db: str | None) -> Any:
    return await options.open_library(db, create=True)


def _given(settings: Any) -> dict[str, Any]:
    from memrecall.chat import ChatOptions
    from memrecall.memory import client_of

    client = client_of(settings)
    recalls = client if settings.chat_recall_with_model else None
    return {
        "model_client": client,
        "recall_client": recalls,
        "options": ChatOptions.of(settings),
    }
