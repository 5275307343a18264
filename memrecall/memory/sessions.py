"""The methods of `AsyncMemory` for sessions, recall and the graph."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.memory.base import SessionKey
from memrecall.memory.graph import list_entities, list_relations
from memrecall.memory.jobs import DEFAULT_TIMEOUT, When
from memrecall.memory.layers import (
    EVERY_MESSAGES,
    EVERY_SECONDS,
    Item,
    LongTermMemory,
    ShortTermMemory,
)
from memrecall.memory.recall import make_recaller
from memrecall.memory.records import revision_item, to_utterance
from memrecall.memory.spaces import SpacesMixin, accepts_space_keys
from memrecall.memory.summaries import SessionSummaries
from memrecall.messages import parse_new_messages
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import AuditEntry, StoredSummary
from memrecall.store.database.memberships import show_writer
from memrecall.store.sessions import SESSION
from memrecall.types import (
    Language,
    NewMessage,
    check_text,
    format_time,
    name_writer,
    parse_time,
)

if TYPE_CHECKING:
    from memrecall.agent import Recaller, RecallOptions, RecallResult
    from memrecall.agent.trace import Observer

_MOST_EXTRACTED = 50  # messages that `extract` reads if none are passed
_MOST_SOURCES = 100  # messages that an experience names


class SessionsMixin(SpacesMixin):
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
        short_term = self._shared.sessions[key]
        await short_term.update()  # other processes may have hidden or erased messages
        return short_term

    async def long_term(
        self, user_id: str | None = None, agent_id: str | None = None
    ) -> LongTermMemory:
        """Return the long-term memory: the user's profile, the agent's knowledge, experience."""
        return LongTermMemory((await self._open()).library, self._scope(user_id, agent_id))

    async def checkpoint(
        self, user_id: str | None = None, agent_id: str | None = None, session_id: str | None = None
    ) -> dict[str, Any]:
        """Save a session's short-term memory."""
        short_term = await self.short_term(user_id, agent_id, session_id)
        checkpoint = await short_term.checkpoint()
        return {"number": checkpoint.number, "created_at": format_time(checkpoint.created_at)}

    async def restore(
        self, user_id: str | None = None, agent_id: str | None = None, session_id: str | None = None
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
        """Summarise a session's messages since the last summary; return all its summaries.

        Without `whole`, only complete groups of messages are summarised. Without a model, the only
        summary (`by` "text") is the most informative sentences of the last messages, computed now.
        """
        scope = self._scope(user_id, agent_id, session_id)
        new, summaries = await (await self._open()).ingestor.summaries.update(scope, whole=whole)
        return {"new": new, "results": [_summary_item(summary) for summary in summaries]}

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
        latest = [values[0] for values in profile.values()]
        facts = [(_profile_line(fact), fact["evidence"]) for fact in latest]
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
        new, stored = await (await self._open()).ingestor.summaries.update(scope, whole=True)
        summaries = [summary for summary in stored if summary.level == SESSION]
        experience = None
        if summaries and summaries[-1].text.strip():  # there may be nothing to say
            messages = await store.timeline(scope).thread(session_id=session, limit=_MOST_SOURCES)
            experience = await LongTermMemory(library, scope).experience.add(
                summaries[-1].text,
                success=success,
                source_message_ids=tuple(message.message_id for message in messages),
            )
        await (await self.short_term(user_id, agent_id, session_id)).end()
        del self._shared.sessions[_session_key(scope)]
        await store.owners.end_session(scope.user_id, session)
        await store.audit(scope).add(AuditEntry("end_session", self._actor, session))
        return {"experience": experience, "summaries": new, "success": success}

    async def extract(
        self,
        messages: object = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Let the model read entities and relations in messages, or in the session's last ones."""
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
        return await resources.ingestor.extract_graph(scope, utterances)

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
        graph = await library.current_graph(self._scope(user_id, agent_id))
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
        time: str | None = None,
    ) -> "RecallResult":
        """Find what the last user message of a conversation refers to, with the evidence.

        `as_of` hides what was said later; `clock` returns the current time; `observer` is called
        with each trace event, in the thread of the memory's event loop. `time` is a period such as
        "last week", outside of which nothing is found.
        """
        given: dict[str, Any] = {"options": options, "clock": clock, "observer": observer}
        given |= {"project": project, "as_of": as_of}
        recaller = await self.recaller(user_id, agent_id, session_id, **given)
        return await recaller.recall(messages, time=time)

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

    @accepts_space_keys
    async def history(self, memory_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """Return the changes of a memory and its predecessors, oldest first, deleted ones too.

        Each entry says what was said (`said`), what replaced what, by whom and why.
        """
        store = (await self._open()).library.store
        scope = await self._scope_of(store, memory_id, user_id)
        revisions = await store.memories(scope).history(memory_id)
        keys = [key for revision in revisions for key in revision.source_message_ids]
        sources = await store.timeline(scope).get_many(list(dict.fromkeys(keys)))
        messages = {source.message_id: source for source in sources}
        return [revision_item(revision, messages) for revision in revisions]

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function that `process` runs by name, or every `add` (`when="add"`)."""
        self._shared.processes.register(name, function, when=when, timeout=timeout)

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
        spaces = (await self._open()).library.store.spaces
        names = await spaces.names(scope.user_id) if scope.author else {}
        items = [
            Item(
                message.content,
                message.role.value,
                show_writer(message.speaker, scope.author, names),
                name,
            )
            for message, name in messages
        ]
        try:
            await short_term.add(items)
        except MemrecallError as error:
            return [f"checkpoint: {error}"]
        return []


def _session_key(scope: Scope) -> SessionKey:
    return scope.user_id, scope.agent_id, scope.session_id or DEFAULT_NAME, scope.read_project


def _profile_line(fact: Mapping[str, Any]) -> str:
    """Return a fact; in a space with the member who wrote it."""
    author = fact.get("author")
    return name_writer(str(fact["value"]), author) if author else str(fact["value"])


def _summary_item(summary: StoredSummary) -> dict[str, Any]:
    return {
        "level": ("turns", "chunk", "session")[summary.level],
        "number": summary.number,
        "first_sequence_no": summary.first_sequence_no,
        "last_sequence_no": summary.last_sequence_no,
        "text": summary.text,
        "by": summary.made_by,
    }
