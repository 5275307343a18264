"""The part of `AsyncMemory` that is about sessions, recall and the graph."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memrecall.errors import MemrecallError
from memrecall.extraction.protocol import Utterance
from memrecall.memory.base import MemoryBase, SessionKey
from memrecall.memory.display import GraphResult
from memrecall.memory.graph import GraphView
from memrecall.memory.long_term import LongTermMemory
from memrecall.memory.recall import recall
from memrecall.memory.short_term import EVERY_MESSAGES, EVERY_SECONDS, Item, ShortTermMemory
from memrecall.memory.summaries import SESSION, SessionSummaries
from memrecall.messages import parse_new_messages
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import StoredSummary
from memrecall.types import NewMessage, format_time, parse_time

if TYPE_CHECKING:
    from memrecall.agent import RecallOptions, RecallResult

_LATEST = 50  # messages that `extract` reads when it is given none
_SOURCES = 100  # messages that an experience names


class SessionsMixin(MemoryBase):
    """Sessions: what they have in mind, their summaries and their end; recall; and the graph."""

    async def short_term(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        every_messages: int = EVERY_MESSAGES,
        every_seconds: float = EVERY_SECONDS,
    ) -> ShortTermMemory:
        """What a session has in mind; from now on `add` to the session goes in there too."""
        scope = self._scope(user_id, agent_id, session_id)
        key = _key(scope)
        if key not in self._shared.sessions:
            store = (await self._parts()).library.store
            self._shared.sessions[key] = ShortTermMemory(
                store, scope, every_messages=every_messages, every_seconds=every_seconds
            )
        return self._shared.sessions[key]

    async def long_term(
        self, user_id: str | None = None, agent_id: str | None = None
    ) -> LongTermMemory:
        """What lasts: the user's profile, the agent's knowledge, experience."""
        parts = await self._parts()
        return LongTermMemory(parts.library, self._scope(user_id, agent_id))

    async def checkpoint(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Save what a session has in mind."""
        saved = await (await self.short_term(user_id, agent_id, session_id)).checkpoint()
        return {"number": saved.number, "created_at": format_time(saved.created_at)}

    async def restore(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> bool:
        """Go on from a session's last checkpoint; False if there is none."""
        return await (await self.short_term(user_id, agent_id, session_id)).restore()

    async def summarize(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        whole: bool = True,
    ) -> dict[str, Any]:
        """Summarise what a session has said since the last time, in layers."""
        parts = await self._parts()
        scope = self._scope(user_id, agent_id, session_id)
        layers = SessionSummaries(parts.library.store, scope, parts.extractor)
        made = await layers.update(whole=whole)
        kept = await parts.library.store.session_state(scope).summaries()
        return {"new": len(made), "results": [_summary_item(summary) for summary in kept]}

    async def state(
        self,
        max_tokens: int,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """A session within so many tokens, for a prompt: summaries, then its last words."""
        parts = await self._parts()
        scope = self._scope(user_id, agent_id, session_id)
        layers = SessionSummaries(parts.library.store, scope, parts.extractor)
        state = await layers.state(max_tokens)
        counts = {"messages": state.messages, "summaries": state.summaries}
        return {"text": state.text, "tokens": state.tokens, **counts}

    async def end_session(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        success: bool | None = None,
    ) -> dict[str, Any]:
        """End a session: what it taught becomes experience, what it had in mind goes."""
        scope = self._scope(user_id, agent_id, session_id)
        parts = await self._parts()
        store = parts.library.store
        made = await SessionSummaries(store, scope, parts.extractor).update(whole=True)
        told = [s for s in await store.session_state(scope).summaries() if s.level == SESSION]
        experience = None
        if told:
            said = await store.timeline(scope).thread(
                session_id=scope.session_id or DEFAULT_NAME, limit=_SOURCES
            )
            sources = tuple(message.message_id for message in said)
            view = LongTermMemory(parts.library, scope).experience
            experience = await view.add(told[-1].text, success=success, source_message_ids=sources)
        mind = await self.short_term(user_id, agent_id, session_id)
        await mind.end()
        del self._shared.sessions[_key(scope)]
        await store.owners.end_session(scope.user_id, scope.session_id or DEFAULT_NAME)
        return {"experience": experience, "summaries": len(made), "success": success}

    async def extract(
        self,
        messages: object = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Write entities and relations into the graph: of messages given, or the session's last."""
        scope = self._scope(user_id, agent_id, session_id)
        parts = await self._parts()
        if messages is None:
            kept = await parts.library.store.timeline(scope).thread(
                session_id=scope.session_id or DEFAULT_NAME, limit=_LATEST
            )
            said = [Utterance(m.message_id, m.speaker, m.role, m.content, m.ts) for m in kept]
        else:
            # Not stored, so there is no message that the graph could name as a source.
            said = [
                Utterance("", message.speaker, message.role, message.content, message.ts)
                for message in parse_new_messages(messages)
            ]
        return await parts.adder.relate(scope, said)

    async def graph(
        self,
        entity: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        to: str | None = None,
        depth: int | None = None,
        as_of: datetime | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """The relations around an entity; the ways to another; or, of nobody, the entities.

        `cursor` goes on with a list of entities; `limit` bounds it, and the relations.
        """
        library = (await self._parts()).library
        view = GraphView(library.graph(self._scope(user_id, agent_id)))
        moment = None if as_of is None else parse_time(as_of, "as_of")
        if entity is None:
            return GraphResult(await view.entities(limit=limit, cursor=cursor))
        if to is not None:
            steps = 3 if depth is None else depth
            return GraphResult(paths=await view.paths(entity, to, depth=steps, as_of=moment))
        steps = 1 if depth is None else depth
        around = await view.neighbours(entity, depth=steps, as_of=moment, limit=limit)
        return GraphResult(relations=around)

    async def recall(
        self,
        messages: object,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        options: "RecallOptions | None" = None,
        as_of: datetime | str | None = None,
        observer: Any = None,
    ) -> "RecallResult":
        """What the last user message of a conversation refers to, with the evidence for it."""
        scope = self._scope(user_id, agent_id, session_id)
        return await recall(
            messages,
            user_id=scope.user_id,
            session_id=scope.session_id,
            agent_id=scope.agent_id,
            permissions=scope.permissions,
            library=(await self._parts()).library,
            model_client=self._shared.model_client,
            options=options,
            as_of=None if as_of is None else parse_time(as_of, "as_of"),
            observer=observer,
        )

    async def merge_entities(
        self, name: str, alias: str, user_id: str | None = None, agent_id: str | None = None
    ) -> None:
        """Two names are of one entity, from now on."""
        library, scope = (await self._parts()).library, self._scope(user_id, agent_id)
        await library.claim_for_graph(scope)
        await library.graph(scope).merge(name, alias)

    async def _keep_in_mind(
        self, scope: Scope, messages: Sequence[NewMessage], ids: Sequence[str]
    ) -> list[str]:
        """Hand new messages to the session's short-term memory, if any; what failed."""
        mind = self._shared.sessions.get(_key(scope))
        if mind is None:
            return []
        fresh = [
            Item(message.content, message.role.value, message.speaker, name)
            for message, name in zip(messages, ids, strict=True)
        ]
        try:
            await mind.add(fresh)
        except MemrecallError as error:
            return [f"checkpoint: {error}"]
        return []


def _key(scope: Scope) -> SessionKey:
    return scope.user_id, scope.agent_id, scope.session_id or DEFAULT_NAME


def _summary_item(summary: StoredSummary) -> dict[str, Any]:
    return {
        "level": ("turns", "chunk", "session")[summary.level],
        "number": summary.number,
        "first_sequence_no": summary.first_sequence_no,
        "last_sequence_no": summary.last_sequence_no,
        "text": summary.text,
        "by": summary.made_by,
    }
