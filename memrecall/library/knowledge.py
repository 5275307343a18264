"""An agent's knowledge base, with lexical and semantic search.

The ranking compares entries with each other, and the best of three unrelated entries is still
unrelated. So a result must also share significant words with the query, or be closer to it than
unrelated texts are.
"""

from collections.abc import Sequence
from dataclasses import replace

from memrecall.errors import InvalidArgument
from memrecall.library.library import Library
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search import EngineRequest, Hit
from memrecall.store import KnowledgeEntry, NewKnowledge
from memrecall.store.knowledge import Knowledge
from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.tokens import BREAK, analyze

LONGEST_ENTRY = 100_000  # characters
_MIN_COVERAGE = 0.5  # of the weight of the query's words; less is a common word or two
_MIN_COVERAGE_ALONE = 0.15  # the same without an embedder
_MIN_COSINE = 0.14  # also where unrelated texts are all equally far from the query
_MIN_SHARE = 0.3  # of the best entry's probability
_STOPS = STOP_TERMS | STOP_CHARS | {BREAK}
_CANDIDATES = 50  # the best of the ranking, which are checked for relevance


class KnowledgeBase(Knowledge):
    """The knowledge of a scope's agent, embedded after it is written, and searched."""

    def __init__(self, library: Library, scope: Scope) -> None:
        super().__init__(library.store.database, scope)
        self._library = library

    async def add(self, entry: NewKnowledge, *, must_exist: bool = False) -> str:
        """Store an entry, or replace the one of its key, and return its key; its vector follows."""
        for name, text in (("content", entry.content), ("summary", entry.summary)):
            if len(text) > LONGEST_ENTRY:
                raise InvalidArgument(
                    f"the {name} has {len(text)} characters, and the limit is {LONGEST_ENTRY}",
                    hint="Split it into several entries",
                )
        await self._library.vectors.prepare()
        key = await super().add(entry, must_exist=must_exist)
        self._library.vectors.expect({}, entries=1)
        return key

    async def update(
        self,
        key: str,
        *,
        content: str | None = None,
        summary: str | None = None,
        tags: Sequence[str] | None = None,
        actor: str = "memrecall",
    ) -> KnowledgeEntry:
        """Change what is given of an entry and return it; NotFound if there is none."""
        old = await self.get(key)
        new = NewKnowledge(
            old.content if content is None else content,
            old.summary if summary is None else summary,
            old.tags if tags is None else tags,
            old.metadata,
            key=key,
            actor=actor,
        )
        await self.add(new, must_exist=True)
        return await self.get(key)

    async def search(
        self, query: str, limit: int = 3, tags: Sequence[str] = ()
    ) -> list[tuple[KnowledgeEntry, float]]:
        """Return the best entries that are relevant to a query and have all tags, with scores."""
        hits = await self.find(query, limit, tags)
        entries = {e.knowledge_key: e for e in await self.get_many([hit.key for hit in hits])}
        return [(entries[hit.key], hit.score) for hit in hits if hit.key in entries]

    async def find(self, query: str, limit: int = 3, tags: Sequence[str] = ()) -> list[Hit]:
        """Return the best entries that are relevant to a query and have all tags, as hits."""
        only = frozenset(await self.keys_with_tags(tags)) if tags else None
        request = EngineRequest(query, limit=limit, kind="knowledge", only=only)  # Checks them.
        if _STOPS.issuperset(analyze(query).atoms):
            return []
        request = replace(request, limit=max(limit, _CANDIDATES))
        page = await self._library.engine.search(self._scope, request)
        agent_id = self._scope.agent_id or DEFAULT_NAME
        if page.unembedded and await self._library.vectors.catch_up_entries(agent_id):
            page = await self._library.engine.search(self._scope, request)
        if not page.results:
            return []
        floor = await self._library.engine.noise_floor(query, page.searched)
        floor = max(floor, _MIN_COSINE)
        min_coverage = _MIN_COVERAGE if floor < 1 else _MIN_COVERAGE_ALONE
        hits = [
            hit
            for hit in page.results
            if hit.why.coverage >= min_coverage or hit.why.cosine >= floor
        ]
        best = max((hit.probability or 0.0 for hit in hits), default=0.0)
        relevant = [hit for hit in hits if (hit.probability or 0.0) >= _MIN_SHARE * best]
        return relevant[:limit]
