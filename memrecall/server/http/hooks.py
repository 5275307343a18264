"""`POST /v1/users/{user_id}/hooks/{client}/{event}`: the events of coding assistants."""

import asyncio
import json
import re
from dataclasses import replace

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import TypeAdapter

from memrecall.agent.blocks import write_relevant_block
from memrecall.integrations.hooks.bindings import Binding, HookError
from memrecall.integrations.hooks.brief import write_brief
from memrecall.integrations.hooks.client import OPTIONS_HEADER, RECEIPT_HEADER, REQUEST_OPTIONS
from memrecall.integrations.hooks.events import MAX_RECALLED, CapturedEvent, read_event
from memrecall.json_objects import load_json_object
from memrecall.memory import Library
from memrecall.memory.ingest import Addition, Ingestor
from memrecall.memory.jobs import Processes
from memrecall.scope import Scope, SpaceRole
from memrecall.server.auth import is_loopback
from memrecall.server.errors import Problem, RequestError
from memrecall.server.http.context import Context, RequestContext
from memrecall.server.http.models import PathId
from memrecall.server.http.openapi import READER, OperationRouter
from memrecall.server.http.recall import (
    BlockOptions,
    RecallHandler,
    RecallLimits,
    RecallRequest,
    with_session,
)
from memrecall.server.http.responses import run_while_connected
from memrecall.server.limits import GRACE_SECONDS, WRITE_SECONDS
from memrecall.text_length import estimate_tokens
from memrecall.timing import allow_seconds
from memrecall.types import NewMessage, Role

_BINDING = TypeAdapter(Binding)
_ITEM = '\n{"memory_key":'  # how the line of a memory begins; contents have no line breaks

router = OperationRouter("recall")


@router.operation(
    "POST", "/users/{user_id}/hooks/{client}/{event}", None, READER, include_in_schema=False
)
async def handle_hook(
    user_id: PathId, client: str, event: str, request: Request, context: Context
) -> Response:
    """Recall for an event of a client's hook and store it; return what the hook prints.

    The folder of the event may have a `.memrecallignore`, which is read here: only programs on this
    machine may ask.
    """
    if request.client is not None and not is_loopback(request.client.host):
        raise RequestError(Problem("PERMISSION_DENIED", "hooks are served to this machine only"))
    scope = await context.scope(user_id)
    try:
        binding = _parse_options(request.headers.get(OPTIONS_HEADER, "{}"), client)
        captured = await asyncio.to_thread(read_event, binding, event, await request.body())
    except (HookError, ValueError, re.error) as error:
        raise RequestError(Problem("INVALID_ARGUMENT", str(error))) from None
    allow_seconds(binding.deadline + GRACE_SECONDS + WRITE_SECONDS)  # to recall and to store
    if captured is None:
        return PlainTextResponse("")
    scope = replace(
        scope,
        agent_id=scope.agent_id or binding.agent,
        session_id=captured.session_id,
        project=captured.project,
        all_projects=binding.all_projects,
    )
    block = ""
    receipt = {"recalled": 0, "tokens": 0, "model_calls": 0, "stored": 0}
    if binding.recall and captured.recalls:
        block, receipt["model_calls"] = await _recall(context, request, scope, binding, captured)
        receipt["recalled"] = block.count(_ITEM)
    elif binding.recall and captured.event.briefs:
        block, receipt["recalled"] = await write_brief(context.library, scope, captured)
    if binding.capture:
        receipt["stored"] = await _store(context, scope, captured)
    receipt["tokens"] = estimate_tokens(block)
    headers = {RECEIPT_HEADER: json.dumps(receipt)}
    return PlainTextResponse(captured.format_output(block), headers=headers)


async def _recall(
    context: RequestContext, request: Request, scope: Scope, binding: Binding, event: CapturedEvent
) -> tuple[str, int]:
    """Return the block for a prompt, and how often a model was called for it."""
    prompt = event.messages[0].content[:MAX_RECALLED]
    body = RecallRequest(
        query=prompt,
        session_id=event.session_id,
        limits=RecallLimits(seconds=binding.deadline),
    )
    body = await with_session(context, scope, body)
    if not body.messages:
        return "", 0
    handler = RecallHandler(context, scope, body, uses_model=False)
    result = await run_while_connected(handler.result(), request.receive, context.service.closing)
    block = write_relevant_block(result, binding.characters, only_sure=True, request=prompt)
    return block, int(result.usage.get("model_calls", 0))


async def _store(context: RequestContext, scope: Scope, event: CapturedEvent) -> int:
    """Store the messages of an event; return how many are new."""
    context.principal.require_write()
    scope.require_role(SpaceRole.CONTRIBUTOR)
    folder = (scope.user_id, event.folder)
    renamed = context.service.renamed
    if event.project is not None and event.project != event.folder and folder not in renamed:
        # The folder has got a remote: what was stored under the folder follows, once.
        await context.library.store.owners.rename_project(*folder, event.project)
        renamed.add(folder)
    if not event.messages:
        return 0
    stored = await store_event(context.library, scope, event)
    context.service.metrics.stored.inc(stored)
    return stored


async def store_event(library: Library, scope: Scope, event: CapturedEvent) -> int:
    """Store the messages of an event that are new, and return how many; the time is now."""
    messages = [
        NewMessage(
            message_id=message.message_id,
            role=Role(message.role),
            content=message.content,
            metadata=event.metadata,
        )
        for message in event.messages
    ]
    addition = Addition(scope=scope, messages=messages)
    # No model reads what is said here: a client's hook must not wait for one.
    stored = await Ingestor(library, None, Processes()).store(addition)
    return stored.written.stored


def _parse_options(header: str, client: str) -> Binding:
    """Return the options of an installation; the path and the key decide its scope."""
    options = load_json_object(header) or {}
    fields = {name: options[name] for name in REQUEST_OPTIONS if name in options}
    binding = _BINDING.validate_python({"client": client, "user": "", **fields})
    BlockOptions(characters=binding.characters)
    RecallLimits(seconds=binding.deadline)
    return binding
