"""The methods of `AsyncMemory` for sessions, recall and the graph."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.memory.base import MemoryBase, SessionKey
from memrecall.memory.graph import (
    is_correction_id,
    list_entities,
    list_relations,
    replace_relation,
    undo_correction,
    write_relations,
)
from memrecall.memory.layers import (
    EVERY_MESSAGES,
    EVERY_SECONDS,
    Item,
    LongTermMemory,
    ShortTermMemory,
)
from memrecall.memory.recall import make_recaller
from memrecall.memory.records import to_utterance
from memrecall.memory.summaries import SessionSummaries
from memrecall.messages import parse_new_messages
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import AuditEntry, StoredSummary
from memrecall.store.sessions import SESSION
from memrecall.types import Language, NewMessage, check_text, format_time, parse_time

if TYPE_CHECKING:
    from memrecall.agent import Recaller, RecallOptions, RecallResult
    from memrecall.agent.trace import Observer

_MOST_EXTRACTED = 50  # messages that `extract` reads if none are passed
_MOST_SOURCES = 100  # messages that an experience names


class SessionsMixin(MemoryBase):
    """Short-term memory, summaries and the end of sessions; recall; the graph."""

    async def short_term(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        every_messages: int = EVERY_MESSAGES,
        every_seconds: float = EVERY_SECONDS,
    ) -> ShortTermMemory:
        """Return a session's short-term memory; from now on `add` to the session fills it."""
        scope = self._scope(user_id, agent_id, session_id)
        key = _session_key(scope)
        if key not in self._shared.sessions:
            store = (await self._open()).library.store
            self._shared.sessions[key] = ShortTermMemory(
                store, scope, every_messages=every_messages, every_seconds=every_seconds
            )
        return self._shared.sessions[key]

    async def long_term(
        self, user_id: str | None = None, agent_id: str | None = None
    ) -> LongTermMemory:
        """Return the long-term memory: the user's profile, the agent's knowledge, experience."""
        library = (await self._open()).library
        return LongTermMemory(library, self._scope(user_id, agent_id))

    async def checkpoint(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Save a session's short-term memory."""
        short_term = await self.short_term(user_id, agent_id, session_id)
        checkpoint = await short_term.checkpoint()
        return {"number": checkpoint.number, "created_at": format_time(checkpoint.created_at)}

    async def restore(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> bool:
        """Load a session's last checkpoint; return False if there is none."""
        return await (await self.short_term(user_id, agent_id, session_id)).restore()

    async def summarize(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        whole: bool = True,
    ) -> dict[str, Any]:
        """Summarise a session's messages since the last summary; return all its summaries."""
        scope = self._scope(user_id, agent_id, session_id)
        new = await (await self._open()).ingestor.summaries.update(scope, whole=whole)
        store = (await self._open()).library.store
        summaries = await store.session_state(scope).summaries()
        return {"new": len(new), "results": [_summary_item(summary) for summary in summaries]}

    async def state(
        self,
        max_tokens: int,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Return a session within `max_tokens`, for a prompt, with its sources.

        It has what is known about the user, then summaries, then the last messages.
        """
        scope = self._scope(user_id, agent_id, session_id)
        library = (await self._open()).library
        profile = await LongTermMemory(library, scope).user_info.profile()
        facts = [(values[0]["value"], values[0]["evidence"]) for values in profile.values()]
        resources = await self._open()
        await resources.ingestor.summaries.settle(scope)
        summaries = SessionSummaries(library.store, scope, resources.extractor)
        return await summaries.context(max_tokens, facts)

    async def end_session(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        success: bool | None = None,
    ) -> dict[str, Any]:
        """End a session: its summary becomes experience, its short-term memory is deleted."""
        scope = self._scope(user_id, agent_id, session_id)
        session = scope.session_id or DEFAULT_NAME
        library = (await self._open()).library
        store = library.store
        new = await (await self._open()).ingestor.summaries.update(scope, whole=True)
        summaries = [s for s in await store.session_state(scope).summaries() if s.level == SESSION]
        experience = None
        if summaries and summaries[-1].text.strip():  # the rules may find nothing to say
            messages = await store.timeline(scope).thread(session_id=session, limit=_MOST_SOURCES)
            experience = await LongTermMemory(library, scope).experience.add(
                summaries[-1].text,
                success=success,
                source_message_ids=tuple(message.message_id for message in messages),
            )
        await (await self.short_term(user_id, agent_id, session_id)).end()
        del self._shared.sessions[_session_key(scope)]
        await store.owners.end_session(scope.user_id, session)
        return {"experience": experience, "summaries": len(new), "success": success}

    async def extract(
        self,
        messages: object = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Extract entities and relations from messages, or the session's last ones."""
        scope = self._scope(user_id, agent_id, session_id)
        resources = await self._open()
        if messages is None:
            stored = await resources.library.store.timeline(scope).thread(
                session_id=scope.session_id or DEFAULT_NAME, limit=_MOST_EXTRACTED
            )
            utterances = [to_utterance(message) for message in stored]
        else:
            # These messages are not stored, so the graph cannot name them as sources.
            utterances = [to_utterance(message, "") for message in parse_new_messages(messages)]
        return await write_relations(resources.library, resources.extractor, scope, utterances)

    async def graph(
        self,
        entity: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        depth: int = 1,
        as_of: datetime | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Return an entity's relations, or all entities.

        `limit` bounds the lists of entities and relations; `cursor` continues the one of entities.
        """
        for name, value in (("entity", entity), ("cursor", cursor)):
            if value is not None:
                check_text(name, value)
        library = (await self._open()).library
        graph = library.graph(self._scope(user_id, agent_id))
        moment = None if as_of is None else parse_time(as_of, "as_of")
        if entity is None:
            return await list_entities(graph, limit, cursor)
        return await list_relations(graph, entity, depth=depth, as_of=moment, limit=limit)

    async def recall(
        self,
        messages: object,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        project: str | None = None,
        options: "RecallOptions | None" = None,
        as_of: datetime | str | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: "Observer | None" = None,
    ) -> "RecallResult":
        """Find what the last user message of a conversation refers to, with the evidence.

        `as_of` hides what was said later; `clock` returns the current time; `observer` is called
        with each trace event, in the thread of the memory's event loop.
        """
        recaller = await self.recaller(
            user_id,
            agent_id,
            session_id,
            project=project,
            options=options,
            as_of=as_of,
            clock=clock,
            observer=observer,
        )
        return await recaller.recall(messages)

    async def recaller(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        project: str | None = None,
        options: "RecallOptions | None" = None,
        as_of: datetime | str | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: "Observer | None" = None,
    ) -> "Recaller":
        """Return the recaller of a scope, which has the open library and the model client."""
        scope = self._scope(user_id, agent_id, session_id, project)
        library = (await self._open()).library
        client = self._shared.components.model_client
        return make_recaller(library, scope, client, options, clock, as_of, observer)

    async def tools(
        self,
        *,
        options: "RecallOptions | None" = None,
        language: Language = "en",
        as_of: datetime | str | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: "Observer | None" = None,
    ) -> list[Any]:
        """Return AutoGen tools for a parent agent to manage the bound user's memories."""
        from memrecall.agent import memory_tools
        from memrecall.agent.driver import utc_now

        recaller = await self.recaller(options=options, as_of=as_of)
        return memory_tools(
            recaller.library,
            recaller.scope,
            model_client=recaller.model_client,
            options=recaller.options,
            language=language,
            clock=clock or utc_now,
            observer=observer,
        )

    async def correct_relation(
        self,
        source: str,
        relationship: str,
        destination: str,
        correction: Mapping[str, str] | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
    ) -> dict[str, Any]:
        """Replace a wrong relation by its correction, or without one remove it.

        `correction` has the parts that differ: source, relationship or destination. Sources and
        validity stay. `undo` takes the `ids` of the report. NotFound if no such relation holds.
        """
        library, scope = (await self._open()).library, self._scope(user_id, agent_id)
        triple = {"source": source, "relationship": relationship, "destination": destination}
        report = await replace_relation(library, scope, triple, correction)
        for key in report["ids"]:
            await library.store.audit(scope).add(AuditEntry("correct_relation", self._actor, key))
        return report

    async def _undo_correction(self, correction_id: str, user_id: str | None) -> bool:
        """Undo a correction of a relation; return False for the id of a memory."""
        if not is_correction_id(correction_id):
            return False
        library, scope = (await self._open()).library, self._scope(user_id)
        await undo_correction(library, scope, correction_id)
        await library.store.audit(scope).add(AuditEntry("undo", self._actor, correction_id))
        return True

    async def erase_project(
        self, project: str | None = None, user_id: str | None = None
    ) -> dict[str, int]:
        """Erase the messages and memories of a project permanently, and what quotes them.

        What is known about the user stays. By default it is the bound project.
        """
        scope = self._scope(user_id, None, None, project)
        if scope.project is None:
            raise InvalidArgument("no project is named", hint="Pass the name of one")
        library = (await self._open()).library
        async with library.store.database.erasing():
            removal = await library.erase_project(scope.user_id, scope.project, self._actor)
            await self._update_short_term(scope.user_id, removal.messages)
        return {"messages": len(removal.messages), "memories": len(removal.memories)}

    async def _update_short_term(self, user_id: str, erased: Collection[str] = ()) -> None:
        """Let a user's short-term memories follow what was hidden, shown or erased."""
        for key, short_term in self._shared.sessions.items():
            if key[0] == user_id:
                await short_term.update(erased)

    async def _add_to_short_term(
        self, scope: Scope, messages: Sequence[tuple[NewMessage, str]]
    ) -> list[str]:
        """Add new messages to the session's short-term memory, if any; return the problems."""
        short_term = self._shared.sessions.get(_session_key(scope))
        if short_term is None or not messages:
            return []
        items = [
            Item(message.content, message.role.value, message.speaker, name)
            for message, name in messages
        ]
        try:
            await short_term.add(items)
        except MemrecallError as error:
            return [f"checkpoint: {error}"]
        return []


def _session_key(scope: Scope) -> SessionKey:
    return scope.user_id, scope.agent_id, scope.session_id or DEFAULT_NAME, scope.read_project


def _summary_item(summary: StoredSummary) -> dict[str, Any]:
    return {
        "level": ("turns", "chunk", "session")[summary.level],
        "number": summary.number,
        "first_sequence_no": summary.first_sequence_no,
        "last_sequence_no": summary.last_sequence_no,
        "text": summary.text,
        "by": summary.made_by,
    }
