"""Search results, and their HTML for notebooks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from memrecall.search.request import Kind
from memrecall.store import KnowledgeEntry
from memrecall.text.html import (
    DIM,
    LINE,
    NARROW,
    TEXT,
    WIDE,
    Html,
    Say,
    box,
    cell,
    clip,
    colour_of,
    folded,
    labels,
    note,
    score_cell,
    table,
    tag,
    warning,
)
from memrecall.text.language import language_of, language_of_most
from memrecall.text_length import single_line
from memrecall.types import MemoryRecord, Message, format_minute


class DegradeReason(StrEnum):
    """Why a search was less thorough than requested."""

    KEYWORDS_ONLY = "keywords_only"  # the query could not be embedded
    PARTLY_EMBEDDED = "partly_embedded"  # some rows have no vector yet
    NOT_RERANKED = "not_reranked"  # the reranker failed


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The parts of a hit's score, then its coverage and cosine."""

    lexical: float
    semantic: float
    thread: float  # words of the lines before it, which name what it speaks of
    neighbours: float
    time: float
    speaker: float
    nature: float  # what kind of row it is: a question counts less, a note more
    coverage: float
    cosine: float

    def as_dict(self) -> dict[str, float]:
        """Return the parts by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result."""

    key: str
    kind: Kind
    score: float
    ts: datetime
    role: str | None
    speaker: str | None
    content: str
    session_id: str | None
    memory_type: str
    why: ScoreParts
    summary: str = ""
    keywords: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    valid_to: datetime | None = None  # when a superseded memory ceased to hold
    probability: float | None = None  # calibrated; hybrid searches only
    replaces: tuple[str, ...] = ()  # keys of earlier statements that this one changes
    sequence_no: int | None = None  # of a message in its session
    origin: str | None = None  # of a memory
    conflicts_with: tuple[str, ...] = ()  # of an unconfirmed claim: what the user said instead
    truncated: bool = False  # a memory whose content was too long: only its beginning is stored

    def _repr_html_(self) -> str:
        say = labels(_LABELS, language_of(self.content))
        style = f"color:{colour_of(self.score)};font-weight:600"
        head = tag("span", f" · {format_minute(self.ts)} · {self.key} · ", style=DIM)
        summary = tag("div", clip(self.summary), style=f"{TEXT};font-weight:600")
        chance = [] if self.probability is None else [f"{say('chance')} {self.probability:.2f}"]
        parts = [f"{say(name)} {value:+.2f}" for name, value in self.why.as_dict().items() if value]
        score = tag("span", f"{self.score:.2f}", style=style)
        return str(
            box(
                tag("div", tag("strong", _author(self)), head, score, style=LINE),
                *([summary] if self.summary else []),
                tag("div", clip(self.content), style=TEXT),
                *([note(" · ".join(self.keywords))] if self.keywords else []),
                *_warnings(self, say),
                folded(say("why"), note(" · ".join([*chance, *parts]))),
            )
        )


def make_hit(row: Message | MemoryRecord | KnowledgeEntry, shared: dict[str, Any]) -> Hit:
    """Return a stored row as a hit, with the fields that do not depend on what it is."""
    if isinstance(row, Message):
        return Hit(
            key=row.message_id,
            kind="message",
            ts=row.ts,
            role=row.role.value,
            speaker=row.speaker,
            content=row.content,
            session_id=row.session_id,
            memory_type="message",
            metadata=row.metadata,
            sequence_no=row.sequence_no,
            **shared,
        )
    if isinstance(row, MemoryRecord):
        return Hit(
            key=row.memory_key,
            kind="memory",
            ts=row.since,
            role=None,
            speaker=None,
            content=row.content,
            session_id=row.session_id,
            memory_type=row.memory_type,
            summary=row.summary,
            keywords=tuple(keyword.keyword for keyword in row.keywords),
            metadata=row.metadata,
            valid_to=row.valid_to,
            origin=row.provenance.origin.value,
            conflicts_with=row.provenance.conflicts_with,
            truncated=row.truncated,
            **shared,
        )
    return Hit(
        key=row.knowledge_key,
        kind="knowledge",
        ts=row.updated_at,
        role=None,
        speaker=None,
        content=row.content,
        session_id=None,
        memory_type="knowledge",
        summary=row.summary,
        keywords=tuple(row.tags),
        metadata=row.metadata,
        **shared,
    )


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of search results, with counts and what the caller should know."""

    results: tuple[Hit, ...] = ()
    total_found: int = 0
    explanation: str = ""  # why there are no results
    embedder_failure: str = ""  # why a hybrid search went on without the query's vector
    reranker_failure: str = ""  # why the results are in the engine's order
    withheld: int = 0  # matches hidden for lack of permission
    unembedded: int = 0  # rows that could be found by their words only
    next_cursor: str | None = None
    searched: int = 0  # rows that passed the filters
    # The memories among the results as they are stored.
    records: Mapping[str, MemoryRecord] = field(default_factory=dict, repr=False, compare=False)
    # For each speaker, how much of the query the results say about them, 0 to 1.
    told_of: Mapping[str, float] = field(default_factory=dict)

    @property
    def degraded(self) -> DegradeReason | None:
        """Why the search was less thorough than requested, if it was."""
        if self.embedder_failure:
            return DegradeReason.KEYWORDS_ONLY
        if self.unembedded:
            return DegradeReason.PARTLY_EMBEDDED
        return DegradeReason.NOT_RERANKED if self.reranker_failure else None

    @property
    def message(self) -> str:
        """Why there are no results and what is missing from them, in words."""
        return self.describe()

    def describe(self, *, withheld: bool = True) -> str:
        """Return the message, without the withheld matches if the caller reports them itself."""
        notes = [self.explanation]
        if self.embedder_failure:
            notes.append(f"searched by keywords only: {self.embedder_failure}")
        if self.withheld and withheld:
            notes.append(f"{self.withheld} sensitive memories withheld: no permission")
        if self.unembedded:
            notes.append(f"{self.unembedded} rows are not embedded yet: run `memrecall reindex`")
        if self.reranker_failure:
            notes.append(f"not reranked: {self.reranker_failure}")
        return "; ".join(filter(None, notes))

    def _repr_html_(self) -> str:
        say = labels(_LABELS, language_of_most(hit.content for hit in self.results))
        headings = [say(name) for name in ("score", "when", "who", "what")]
        rows = [table((_row(hit, say) for hit in self.results), headings)] if self.results else []
        return str(box(note(_summary(self, say)), *rows, *_remarks(self, say)))


@dataclass(frozen=True, slots=True)
class ScoredMessage:
    """A message with its score, the passages that match and where their words are."""

    message: Message
    score: float
    snippets: tuple[str, ...] = ()
    offsets: tuple[tuple[int, int], ...] = ()  # start and end in the content, in code points


@dataclass(frozen=True, slots=True)
class ScoredPage:
    """Messages, best first, and the cursor of the next page."""

    items: tuple[ScoredMessage, ...] = ()
    next_cursor: str | None = None
    unembedded: int = 0  # messages that a semantic search could not find
    truncated: bool = False  # more were found, but they take too many bytes for one page

    @property
    def degraded(self) -> DegradeReason | None:
        """Why the search was less thorough than requested, if it was."""
        return DegradeReason.PARTLY_EMBEDDED if self.unembedded else None


_MAX_ROW_CHARACTERS = 300
_LABELS = {
    "results": ("results", "条结果"),
    "of": ("of", "/"),
    "searched": ("searched", "条记录已搜索"),
    "nothing": ("nothing was found", "没有找到"),
    "withheld": ("sensitive memories withheld", "条敏感记忆未显示"),
    "unembedded": ("rows without a vector, found by keywords only", "条暂时只能按字词找到"),
    "embedder_failure": ("searched by keywords only", "仅按关键词搜索"),
    "reranker_failure": ("not reranked", "未重新排序"),
    "more": ("there are more", "还有更多"),
    "why": ("why it was found", "为什么找到它"),
    "chance": ("chance of being relevant", "相关的可能性"),
    "replaced": ("replaced on", "已被取代于"),
    "conflicts": ("unconfirmed, conflicts with", "未经确认，与以下记忆冲突："),
    "score": ("score", "得分"),
    "when": ("when", "时间"),
    "who": ("who", "谁"),
    "what": ("what", "内容"),
    "lexical": ("words", "字词"),
    "semantic": ("meaning", "语义"),
    "thread": ("thread", "话题"),
    "neighbours": ("neighbours", "上下文"),
    "time": ("time", "时间"),
    "speaker": ("speaker", "说话人"),
    "nature": ("nature", "性质"),
    "coverage": ("coverage", "覆盖率"),
    "cosine": ("cosine", "余弦"),
}


def _row(hit: Hit, say: Say) -> list[Html]:
    text = hit.summary or hit.content
    return [
        score_cell(hit.score),
        cell(format_minute(hit.ts), f"{NARROW};{DIM}"),
        cell(tag("strong", _author(hit))),
        tag("td", single_line(text, _MAX_ROW_CHARACTERS), *_warnings(hit, say), style=WIDE),
    ]


def _warnings(hit: Hit, say: Say) -> list[Html]:
    """Return notes on a superseded memory or an unconfirmed claim."""
    notes = [f"{say('replaced')} {hit.valid_to:%Y-%m-%d}"] if hit.valid_to else []
    notes += [f"{say('conflicts')} {', '.join(hit.conflicts_with)}"] if hit.conflicts_with else []
    return [warning(each) for each in notes]


def _summary(page: SearchPage, say: Say) -> str:
    count, total = len(page.results), page.total_found
    if not count and not total:
        parts = [say("nothing")]
    else:
        number = f"{count:,}" if count == total else f"{count:,} {say('of')} {total:,}"
        parts = [f"{number} {say('results')}"]
    if page.searched:
        parts.append(f"{page.searched:,} {say('searched')}")
    return " · ".join(parts)


def _remarks(page: SearchPage, say: Say) -> list[Html]:
    remarks = [page.explanation] if page.explanation else []
    for name in ("embedder_failure", "reranker_failure"):
        failure = getattr(page, name)
        remarks += [f"{say(name)}: {failure}"] if failure else []
    remarks += [f"{page.withheld:,} {say('withheld')}"] if page.withheld else []
    remarks += [f"{page.unembedded:,} {say('unembedded')}"] if page.unembedded else []
    more = [note(say("more"))] if page.next_cursor else []
    return [*map(warning, remarks), *more]


def _author(hit: Hit) -> str:
    return hit.speaker or hit.role or hit.memory_type
