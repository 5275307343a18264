"""The features of rows: what the order of a search is computed from.

In a conversation a subject is named once and then spoken of: "the phone is …" belongs to the shop
that was named three lines before. So a line inherits the words of the earlier lines of its session,
the nearer the more. Who said a line, on which day and how long it is count too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from memrecall.search.index import Floats, Mask, Rows
from memrecall.search.index.columns import ALWAYS, MESSAGE, NEVER, Columns, to_micros
from memrecall.search.ranking.lexical import (
    LexicalScores,
    SearchTerm,
    Spans,
    all_terms,
    bm25,
    count_words,
    language_cost,
    posting_rows,
    query_terms,
)
from memrecall.search.ranking.scores import (
    Noise,
    QuerySupport,
    RankingFeatures,
    Standardizer,
    significance_of,
)
from memrecall.search.request import EngineRequest
from memrecall.text.language import FIRST_PERSON, STOP_TERMS, is_question
from memrecall.text.query import Query, positive_words
from memrecall.text.times import TimeSpan, find_times
from memrecall.text.tokens import normalize, stem
from memrecall.text_length import cache_short_texts

DAY = 86_400_000_000  # microseconds
# A question about a day may be answered up to two days before or after it; a question about a
# month is not answered in the days around that month.
NEARBY = 2 * DAY
_SHORT_SPAN = timedelta(days=3)
_HALF_TRUST_ROWS = 8  # with this many rows, lengths count half
_MISSING_ROW_SCORE = -2.0  # lower than the score of most rows
_REACH = 16  # lines
PAUSE = DAY // 2  # after a longer one, people speak of something else
_DECAY = np.float32(0.9) ** np.arange(_REACH + 1, dtype=np.float32)


class SessionOrder(NamedTuple):
    """All rows, ordered by session and time; a long pause begins another session."""

    rows: Rows
    position: Rows  # of each row in `rows`
    end: Rows  # for each position, where its session ends


@dataclass(frozen=True, slots=True)
class ThreadScores:
    """The query's words in each row: its own, and those that it inherits."""

    own: Floats  # the squared weights of its words
    inherited: Floats  # the same for words of earlier lines, lower with the distance
    coverage: Floats  # its share of the query, by the rarity of words in the language
    known: float  # the share of the query that any row has, by the same measure
    has_words: Mask  # also of rows that do not count


def thread_scores(
    columns: Columns,
    weights: Mapping[SearchTerm, float],
    spans: Sequence[Spans],
    counted: Mask,
    version: int,
) -> ThreadScores:
    """Return the scores of all rows for a query's weighted terms. Only counted rows have words."""
    order = columns.cached("sessions", lambda: _session_order(columns, version), version)
    rows, terms = posting_rows(columns, spans)
    has_words = np.zeros(columns.rows, dtype=np.bool_)
    has_words[rows] = True
    if np.count_nonzero(counted) < columns.rows:
        is_counted = counted[rows]
        rows, terms = rows[is_counted], terms[is_counted]
    squares = np.array([weight**2 for weight in weights.values()], dtype=np.float64)
    costs = np.array([language_cost(term) for term in weights], dtype=np.float64)
    shares = costs / (np.add.reduce(costs) or 1.0)
    inherited = np.zeros(columns.rows, dtype=np.float32)
    inherited[order.rows] = _inherited(order, rows, terms, squares)
    return ThreadScores(
        own=_sum_by_row(rows, squares[terms], columns.rows),
        inherited=inherited,
        coverage=_sum_by_row(rows, shares[terms], columns.rows),
        known=float(np.add.reduce(shares[np.bincount(terms, minlength=len(shares)) > 0])),
        has_words=has_words,
    )


def _inherited(
    order: SessionOrder, rows: Rows, terms: Rows, weights: npt.NDArray[np.float64]
) -> Floats:
    """Return the term scores that following rows inherit, until the term occurs again."""
    # All terms at once: a question has many, and most are rare.
    shift = len(order.rows).bit_length()
    places = (terms << shift) | order.position[rows]
    places.sort(kind="stable")  # quick where sessions follow one another: they are in order
    at = places & ((1 << shift) - 1)
    ends = np.minimum(order.end[at], at + (_REACH + 1))
    # The next row with the same term; with another term, it is beyond all rows.
    np.minimum(ends[:-1], at[:-1] + np.diff(places), out=ends[:-1])
    lengths = ends - at - 1
    # A frequent term is in the next line again, which then inherits nothing.
    givers = lengths.nonzero()[0]
    at, lengths, gains = at[givers], lengths[givers], weights[places[givers] >> shift]
    # For each line that inherits: the row with the term that it follows, and how far behind it is.
    source = np.repeat(np.arange(len(at)), lengths)
    distance = np.arange(1, len(source) + 1) - (np.cumsum(lengths) - lengths)[source]
    return _sum_by_row(at[source] + distance, gains[source] * _DECAY[distance], len(order.rows))


def _sum_by_row(rows: Rows, values: npt.NDArray[np.float64], size: int) -> Floats:
    return np.bincount(rows, values, size).astype(np.float32)


def _session_order(columns: Columns, version: int) -> SessionOrder:
    table = columns.table
    is_message = (table.kind == MESSAGE) & columns.alive(version)
    messages = np.flatnonzero(is_message)
    keys = (table.place[messages], table.ts[messages], table.session[messages])
    messages = messages[np.lexsort(keys)]
    rows = np.concatenate([messages, np.flatnonzero(~is_message)])
    session, ts = table.session[messages], table.ts[messages]
    is_first = np.ones(len(rows), dtype=np.bool_)  # rows without a session stand alone
    is_first[1 : len(messages)] = (session[1:] != session[:-1]) | (np.diff(ts) > PAUSE)
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(rows))
    position = np.empty(len(rows), dtype=np.int64)
    position[rows] = np.arange(len(rows))
    return SessionOrder(rows, position, ends[np.cumsum(is_first) - 1])


def dialogue_rows(columns: Columns, version: int) -> Mask:
    """Return the messages with a neighbour by another speaker in their session."""

    def compute() -> Mask:
        before, after = columns.neighbours(version)
        table = columns.table
        voice = table.speaker * 8 + table.role  # an unnamed speaker is identified by the role
        padded = np.append(voice, -99)
        is_dialogue: Mask = (before >= 0) & (padded[before] != voice)
        is_dialogue |= (after >= 0) & (padded[after] != voice)
        return is_dialogue

    return columns.cached("dialogue", compute, version)


def reply_scores(columns: Columns, scores: Floats, version: int) -> Floats:
    """Return the score of the question that each dialogue row follows; 0 for other rows."""
    if not columns.cached("has_questions", lambda: bool(columns.table.asks.any())):
        return np.zeros(columns.rows, dtype=np.float32)
    before, _ = columns.neighbours(version)
    padded = np.append(scores * columns.table.asks, np.float32(0))  # index -1 means no row
    replies: Floats = (padded[before] * dialogue_rows(columns, version)).astype(np.float32)
    return replies


class Days(NamedTuple):
    """Rows in the order of their days, and where each day begins."""

    order: Rows
    starts: Rows
    day_of: Rows  # for each position in the order, the number of its day


def _days(columns: Columns, offset: int) -> Days:
    number = (columns.table.ts + offset) // DAY
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    is_first = _is_first(ordered)
    return Days(order, np.flatnonzero(is_first), np.cumsum(is_first) - 1)


def _is_first(ordered: npt.NDArray[np.int64]) -> Mask:
    """Return for each of some ordered numbers whether it differs from the one before it."""
    is_first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


def day_scores(columns: Columns, scores: Floats, counted: Mask, offset: int) -> Floats:
    """Return the best score of another row of each row's day. Days begin at `offset`."""
    if not columns.rows:
        return np.zeros(0, dtype=np.float32)
    days = columns.cached(f"days{offset}", lambda: _days(columns, offset))
    ordered = np.where(counted, scores, np.float32(_MISSING_ROW_SCORE))[days.order]
    best = np.maximum.reduceat(ordered, days.starts)[days.day_of]
    # The first row with the best score of its day gets the second best.
    ties = (ordered == best).nonzero()[0]
    leaders = ties[_is_first(days.day_of[ties])]
    rest = ordered.copy()
    rest[leaders] = _MISSING_ROW_SCORE
    best[leaders] = np.maximum.reduceat(rest, days.starts)[days.day_of[leaders]]
    others = np.empty(columns.rows, dtype=np.float32)
    others[days.order] = best
    return others


def time_scores(columns: Columns, spans: Sequence[TimeSpan]) -> tuple[Floats, Floats]:
    """Return 1 for rows within one of the spans, and 1 for rows just around short spans."""
    ts = columns.table.ts
    inside = np.zeros(columns.rows, dtype=np.bool_)
    around = np.zeros(columns.rows, dtype=np.bool_)
    if not spans:
        return inside.astype(np.float32), around.astype(np.float32)
    for span in spans:
        start = ALWAYS if span.start is None else to_micros(span.start)
        end = NEVER if span.end is None else to_micros(span.end)
        inside |= (ts >= start) & (ts < end)
        if span.start and span.end and span.end - span.start <= _SHORT_SPAN:
            around |= (ts >= start - NEARBY) & (ts < end + NEARBY)
    return inside.astype(np.float32), (around & ~inside).astype(np.float32)


def named_rows(columns: Columns, speakers: Sequence[str], counted: Mask) -> tuple[Mask, float]:
    """Return the rows by the named speakers, and their share of the counted rows."""
    table = columns.table
    if not speakers:
        return np.zeros(columns.rows, dtype=np.bool_), 0.0
    is_named = np.isin(table.speaker, [table.names.find(name) for name in speakers])
    return is_named, float(is_named[counted].mean()) if counted.any() else 0.0


def length_scores(columns: Columns, counted: Mask) -> Floats:
    """Return the length of each row, in standard deviations of its logarithm."""
    logarithms = columns.cached(
        "log_lengths", lambda: np.log1p(columns.lengths()).astype(np.float32)
    )
    measured = logarithms[counted]
    if not len(measured):
        return np.zeros(columns.rows, dtype=np.float32)
    spread = max(float(measured.std()), 1e-6)
    trust = len(measured) / (len(measured) + _HALF_TRUST_ROWS)
    scores: Floats = ((logarithms - measured.mean()) * (trust / spread)).astype(np.float32)
    return scores


_LATIN = "A-Za-z\u00c0-\u024f"
# "Ann昨天" is a name and a word: Chinese has no spaces, and "\\b" matches no boundary there.
_WORD = re.compile(rf"[{_LATIN}][{_LATIN}\d]*|\d+|[^\W\d_{_LATIN}]+")
_LETTER = re.compile(r"[^\W\d_]")
_IS_LATIN = re.compile(rf"[{_LATIN}]")
_WORD_START, _WORD_END = rf"(?<![{_LATIN}\d_])", rf"(?![{_LATIN}\d_])"
_MIN_NAME_LENGTH = 2  # "A" would be found in every query
_USER_LABEL = re.compile("用户(?!名)")  # 用户名 is a user name
_VERB = r"(?P<verb>did|does|do|has|have|is|was|were|are|will|would|had|can|could|should|might)"


def find_speakers(query: str, speakers: Sequence[str]) -> Mapping[str, str]:
    """Return the speakers that a query names, each with the words that name them there."""
    return _find_speakers(query, tuple(speakers)) if speakers else {}


@lru_cache(256)  # a search asks three times
def _find_speakers(query: str, speakers: tuple[str, ...]) -> Mapping[str, str]:
    words = [match.group() for match in _WORD.finditer(query)]
    names = {_speaker_key(word): word for word in words if not word.isdigit()}
    # "Lei Mingxuan" may be stored as leimingxuan, and "Speaker 2" is not any Speaker.
    pairs = {
        _speaker_key(first + second): (first, second)
        for first, second in pairwise(words)
        if not first.isdigit()
    }
    found: dict[str, str] = {}
    for speaker in speakers:
        folded = _speaker_key(speaker)
        if len(folded) < _MIN_NAME_LENGTH:
            continue
        if folded in pairs:
            found[speaker] = " ".join(pairs[folded])
        elif folded in names:
            found[speaker] = names[folded]
        elif not _IS_LATIN.search(speaker) and speaker in query:
            found[speaker] = speaker
    # "Ross Martin" in a query is not Ross Geller.
    in_whole_name = {word for name in found.values() if " " in name for word in name.split()}
    for speaker in speakers:
        first_name = _first_name(speaker)
        word = names.get(_speaker_key(first_name), "")
        if speaker in found or len(_speaker_key(first_name)) < _MIN_NAME_LENGTH:
            continue
        if word and word not in in_whole_name and _is_written_as_name(word):
            found[speaker] = word
        elif not _IS_LATIN.search(first_name) and first_name in query:
            found[speaker] = first_name
    return found


def _first_name(speaker: str) -> str:
    """Return Ross for Ross Geller and 陈建国 for 陈建国（同事）; "" for a name of one word."""
    first = _WORD.match(speaker)
    # An abbreviation is a title: Dr. Green.
    if not first or first.group().isdigit() or speaker.startswith(".", first.end()):
        return ""
    # "Speaker 1" has no first name.
    return first.group() if _LETTER.search(speaker, first.end()) else ""


def _is_written_as_name(word: str) -> bool:
    """Tell Will from will: only a whole name is found in lower case."""
    if not _IS_LATIN.match(word):
        return True
    return word[:1].isupper() and stem(word) not in STOP_TERMS


def to_first_person(query: str, names: Sequence[str]) -> str:
    """Return a query as if the people it names asked it about themselves."""
    for name in sorted(names, key=len, reverse=True):
        if not _IS_LATIN.search(name):
            query = query.replace(name, "我")
            continue
        # The parts of a name may be joined by any punctuation: "Mary-Jane", "O'Neil".
        pattern = _WORD_START + re.escape(name).replace(r"\ ", r"[\W_]+") + _WORD_END
        query = re.sub(rf"\b{_VERB}\s+{pattern}(?!['’]s)", r"\g<verb> I", query, flags=re.I)
        query = re.sub(rf"{pattern}['’]s\b", "my", query, flags=re.I)
        query = re.sub(pattern, "I", query, flags=re.I)
    return query


def user_to_first_person(query: str) -> str:
    """Return a query about "the user", a label that most memories have, as if they asked it."""
    return to_first_person(_USER_LABEL.sub("我", query), ["the user"])


@cache_short_texts(10_000, characters=100)
def _speaker_key(name: str) -> str:
    return re.sub(r"[\W_]+", "", normalize(name)).lower()


_NO_NOISE = (0.0, 0.0)
# A remark shares words with many rows by chance: they count only if one row has enough of them.
_REMARK_WORDS = (3, 7)  # up to how many words a query is none, from how many it is one
_REMARK_COVERAGE = (0.2, 0.5)
# What a withheld row must have: this share of the query's words, or this significant a similarity.
_MATCHING_COVERAGE, _MATCHING_SIGNIFICANCE = 0.5, 3.0


@dataclass(frozen=True, slots=True)
class RankingQuery:
    """A request prepared for ranking: parsed, embedded, with its version, time and zone."""

    request: EngineRequest
    query: Query | None
    vector: Floats | None
    version: int
    now: datetime
    zone: ZoneInfo
    noise: Noise | None = None


@dataclass(frozen=True, slots=True)
class RowScores:
    """The scores of all rows by words, by meaning and, in a hybrid search, by their threads."""

    lexical: LexicalScores
    cosine: Floats
    embedded: Mask  # the rows with a vector
    threads: ThreadScores | None


def score_rows(columns: Columns, query: RankingQuery, alive: Mask, counted: Mask) -> RowScores:
    """Return how well all rows match a query; `counted` ones are what scores are measured against.

    A search by words or by meaning alone ranks by one side, and needs no threads.
    """
    request = query.request
    more = (*request.keywords, *request.expansions)
    if query.query is not None:
        terms = all_terms("\n".join((*positive_words(query.query), *more)))
    else:
        terms = query_terms("\n".join((request.query, *more)))
    lexical = bm25(columns, terms, alive)
    if query.vector is None or len(query.vector) != columns.vectors.dimensions:
        cosine = np.zeros(columns.rows, dtype=np.float32)
        embedded = np.zeros(columns.rows, dtype=np.bool_)
    else:
        embedded = columns.embedded(query.version)
        cosine = columns.vectors.similarities(query.vector, columns.rows)
        cosine[~embedded] = 0
    threads = None
    if request.mode == "hybrid":
        threads = thread_scores(columns, lexical.weights, lexical.spans, counted, query.version)
    return RowScores(lexical, cosine, embedded, threads)


def count_matches(query: RankingQuery, scores: RowScores, rows: Rows) -> int:
    """Return how many withheld rows match by themselves.

    Their relevance does not say it: it is measured against the rows that may be shown.
    """
    if query.query is not None or not len(rows):
        return len(rows)
    is_match = scores.lexical.coverage(rows) >= _MATCHING_COVERAGE
    if query.noise is not None:
        nearest = query.noise.median + _MATCHING_SIGNIFICANCE * query.noise.spread
        is_match |= scores.cosine[rows] >= nearest
    return int(np.count_nonzero(is_match))


def query_support(
    query: RankingQuery, scores: RowScores, threads: ThreadScores, counted: Mask
) -> QuerySupport:
    """Return what the counted rows as a whole have of a query."""
    is_comparable = counted & scores.embedded
    nearest = float(np.maximum.reduce(scores.cosine[is_comparable], initial=0))
    return QuerySupport(
        known=threads.known,
        coverage=float(np.maximum.reduce(threads.coverage, initial=0)),
        significance=significance_of(
            nearest, query.noise if np.count_nonzero(is_comparable) else None
        ),
        words=count_words(scores.lexical.weights),
        rows=int(np.count_nonzero(counted)),
        is_personal=FIRST_PERSON.search(query.request.query) is not None,
    )


def compute_features(
    columns: Columns, query: RankingQuery, scores: RowScores, counted: Mask, rows: Rows
) -> RankingFeatures:
    """Return the features of some rows, standardised over the counted rows."""
    lexical, threads = scores.lexical, scores.threads
    size = int(np.count_nonzero(counted))
    cosines = scores.cosine[counted & scores.embedded]
    meaning = Standardizer.fit(cosines, len(cosines), query.noise or _NO_NOISE)
    near = meaning.apply(scores.cosine) * scores.embedded
    features = {"semantic": near[rows], "cosine": scores.cosine[rows]}
    if threads is None:
        # Few rows share a word with the query: only those are read.
        scored = (lexical.scores > 0).nonzero()[0]
        words = Standardizer.fit(lexical.scores[scored[counted[scored]]], size)
        coverage = lexical.coverage(rows)
        return features | {"lexical": words.apply(lexical.scores[rows]), "coverage": coverage}
    total = threads.own + threads.inherited
    words = Standardizer.fit(total[counted], size)
    coverage, best = threads.coverage[rows], float(np.maximum.reduce(threads.coverage, initial=0))
    trust = np.float32(_trust_in_words(query.request.query, len(lexical.weights), best))
    base = (words.apply(total) + near) * np.float32(0.5)
    # Only a day above average says something for its rows.
    offset = query.now.astimezone(query.zone).utcoffset() or timedelta(0)
    days = day_scores(columns, base, counted, int(offset.total_seconds()) * 1_000_000)
    return features | {
        "lexical": trust * words.apply(threads.own[rows]),
        "coverage": coverage,
        "exact": trust * np.maximum(2 * coverage - 1, 0),
        "wordless": features["semantic"] * np.float32(1 - best),
        "thread": trust * words.scale(threads.inherited[rows]),
        "day": trust * np.maximum(days, 0)[rows],
        "reply": trust * reply_scores(columns, near, query.version)[rows],
        **_line_features(columns, query, counted, rows),
    }


def _trust_in_words(query: str, words: int, best_coverage: float) -> float:
    """Return how much shared words count: all for a question, less for a longer remark."""
    if "\n" in query.strip() or is_question(query):
        return 1.0
    return 1 - _share_of(_REMARK_WORDS, words) * (1 - _share_of(_REMARK_COVERAGE, best_coverage))


def _share_of(bounds: tuple[float, float], value: float) -> float:
    """Return how far a value is from the lower to the upper bound, 0 to 1."""
    low, high = bounds
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _line_features(
    columns: Columns, query: RankingQuery, counted: Mask, rows: Rows
) -> dict[str, Floats]:
    """Return what tells of rows who said them, when, in which situation and how long they are."""
    text = query.request.query.strip()
    # Several lines are a conversation, in which "today" and "tonight" are small talk.
    spans = [] if "\n" in text else find_times(text, query.now, query.zone)
    inside, nearby = time_scores(columns, spans)
    speakers = find_speakers(query.request.query, columns.speakers(query.version))
    is_named, share = named_rows(columns, list(speakers), counted)
    lone = (~dialogue_rows(columns, query.version)[rows]).astype(np.float32)
    named = is_named[rows].astype(np.float32)
    voice = named * (1 - lone)
    if counted is columns.alive(query.version):  # every living row counts, as in most searches
        lengths = columns.cached(
            "length_scores", lambda: length_scores(columns, counted), query.version
        )
    else:
        lengths = length_scores(columns, counted)
    return {
        "time": inside[rows],
        "nearby": nearby[rows],
        "speaker": named - np.float32(share),
        "voice": voice,
        "group": voice * np.float32(max(1 - 2 * share, 0)),
        "lone": lone,
        "length": lengths[rows] * lone,
        "asks": columns.table.asks[rows].astype(np.float32),
    }
