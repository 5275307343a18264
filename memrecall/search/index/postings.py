"""Postings as arrays: an immutable run of rows, merged with its neighbour as the index grows.

`keys` are sorted; the rows of keys[i] are docs[offsets[i]:offsets[i+1]], counted from the segment's
first row, and `frequencies` says how often each has the term. `atoms` is the text itself as term
numbers, with a break after each row; phrases are matched against it.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrecall.errors import QueryTooExpensive
from memrecall.text.tokens import BREAK, is_cjk

Ids = npt.NDArray[np.int32]
_Keys = npt.NDArray[np.int64]

BREAK_ID = 0
_MAX_FREQUENCY = 255  # a term that occurs more often in one row is counted this often


class Vocabulary(dict[str, int]):
    """A number for each term; looking up an unknown term with [] adds it."""

    def __init__(self, terms: Iterable[str] = (BREAK,)) -> None:
        super().__init__((term, number) for number, term in enumerate(terms))
        self._cjk = bytearray(map(is_cjk, self))

    def __missing__(self, term: str) -> int:
        number = len(self)
        self[term] = number
        self._cjk.append(is_cjk(term))
        return number

    @property
    def cjk(self) -> npt.NDArray[np.bool_]:
        """For each term number, True if the term is a character that forms bigrams."""
        return np.frombuffer(bytes(self._cjk), dtype=np.bool_)

    def starting_with(self, prefix: str) -> list[int]:
        """Return the numbers of all terms with that prefix."""
        return [number for term, number in self.items() if term.startswith(prefix)]

    def nbytes(self) -> int:
        """Estimate the memory in use."""
        return 130 * len(self)


def bigram_key(first: int, second: int) -> int:
    """Return the key of two neighbouring characters."""
    return (first << 32) | second


def bigram_keys(atoms: Ids, cjk: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], _Keys]:
    """Return where in `atoms` a bigram begins, and the keys of the bigrams."""
    is_char = cjk[atoms]
    starts = np.flatnonzero(is_char[:-1] & is_char[1:])
    keys = (atoms[starts].astype(np.int64) << 32) | atoms[starts + 1]
    return starts, keys


_MAX_COST = 100_000_000


class QueryCost:
    """The work that one query may cause, counted in array elements."""

    def __init__(self, limit: int = _MAX_COST) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, elements: int) -> None:
        """Count some work before it is done; QueryTooExpensive if the limit is exceeded."""
        self.spent += elements
        if self.spent > self.limit:
            raise QueryTooExpensive(
                f"the query would read more than {self.limit:,} entries of the index",
                hint="Use fewer words, shorter phrases and longer prefixes",
            )


@dataclass(frozen=True, slots=True)
class Segment:
    """The postings and the text of some consecutive rows."""

    rows: int
    keys: _Keys
    offsets: npt.NDArray[np.int64]
    docs: Ids
    frequencies: npt.NDArray[np.uint8]
    lengths: Ids
    atoms: Ids
    atom_offsets: npt.NDArray[np.int64]

    def nbytes(self) -> int:
        """Return the memory of the arrays."""
        arrays = (self.keys, self.offsets, self.docs, self.frequencies, self.lengths)
        return sum(a.nbytes for a in (*arrays, self.atoms, self.atom_offsets))

    def spans(self, keys: _Keys) -> list[tuple[int, int]]:
        """Return where the postings of each key begin and end; equal if it has none."""
        if not len(self.keys):
            return [(0, 0)] * len(keys)
        at = np.searchsorted(self.keys, keys)
        at[at == len(self.keys)] = 0
        is_present = self.keys[at] == keys
        starts = np.where(is_present, self.offsets[at], 0)
        ends = np.where(is_present, self.offsets[at + 1], 0)
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def rows_with_phrase(self, phrase: Sequence[Ids], cost: QueryCost) -> Ids:
        """Return the rows with these atoms in a row; each position allows several atoms."""
        rows = self._rows_with_all(phrase, cost)
        first, sizes = self.atom_offsets[rows], np.diff(self.atom_offsets)[rows]
        cost.spend(int(sizes.sum()))
        # The positions of all atoms of these rows.
        starts = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        starts = starts[starts + len(phrase) <= len(self.atoms)]
        for at, choices in enumerate(phrase):
            cost.spend(len(starts))
            atoms = self.atoms[starts + at]
            starts = starts[atoms == choices[0] if len(choices) == 1 else np.isin(atoms, choices)]
            if not len(starts):
                break
        rows = np.searchsorted(self.atom_offsets, starts, side="right") - 1
        return np.unique(rows).astype(np.int32)

    def _rows_with_all(self, phrase: Sequence[Ids], cost: QueryCost) -> npt.NDArray[np.int64]:
        """Return the rows with all atoms of a phrase, in any order; the rarest are read first."""
        distinct = {choices.tobytes(): choices for choices in phrase}.values()
        spans = [self.spans(choices.astype(np.int64)) for choices in distinct]
        rows: npt.NDArray[np.int64] | None = None
        for places in sorted(spans, key=lambda places: sum(end - start for start, end in places)):
            docs = np.concatenate([self.docs[start:end] for start, end in places])
            cost.spend(len(docs))
            if len(places) > 1:
                docs = np.unique(docs)
            rows = docs.astype(np.int64) if rows is None else rows[np.isin(rows, docs)]
            if not len(rows):
                break
        return np.zeros(0, dtype=np.int64) if rows is None else rows


def build_segment(lines: Sequence[str], vocabulary: Vocabulary) -> Segment:
    """Build the segment of rows from their search texts."""
    halves = [line.partition("\t") for line in lines]
    atoms, atom_offsets = _number_terms([half[0] for half in halves], vocabulary, (BREAK_ID,))
    extras, extra_offsets = _number_terms([half[2] for half in halves], vocabulary, ())
    row_of_atom = np.repeat(np.arange(len(lines), dtype=np.int32), np.diff(atom_offsets))
    row_of_extra = np.repeat(np.arange(len(lines), dtype=np.int32), np.diff(extra_offsets))
    starts, pairs = bigram_keys(atoms, vocabulary.cjk)
    is_term = atoms != BREAK_ID
    keys = np.concatenate([atoms[is_term].astype(np.int64), pairs, extras.astype(np.int64)])
    docs = np.concatenate([row_of_atom[is_term], row_of_atom[starts], row_of_extra])
    return _pack(len(lines), keys, docs, atoms, atom_offsets)


def _number_terms(
    lines: Sequence[str], vocabulary: Vocabulary, ending: tuple[int, ...]
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Return the term numbers of all lines in one array, and where each line begins."""
    numbers = array("i")  # Four bytes a term: a list of Python integers takes ten times as much.
    offsets = np.zeros(len(lines) + 1, dtype=np.int64)
    for at, line in enumerate(lines, 1):
        numbers.extend(map(vocabulary.__getitem__, line.split()))
        numbers.extend(ending)
        offsets[at] = len(numbers)
    return np.array(numbers, dtype=np.int32), offsets


def _pack(
    rows: int, keys: _Keys, docs: Ids, atoms: Ids, atom_offsets: npt.NDArray[np.int64]
) -> Segment:
    """Count equal (key, row) pairs and sort them into postings."""
    lengths = np.bincount(docs, minlength=rows).astype(np.int32)
    order = np.lexsort((docs, keys))
    keys, docs = keys[order], docs[order]
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = (keys[1:] != keys[:-1]) | (docs[1:] != docs[:-1])
    starts = np.flatnonzero(is_first)
    counts = np.diff(np.append(starts, len(keys)))
    keys, docs = keys[starts], docs[starts]
    unique, first_postings = np.unique(keys, return_index=True)
    offsets = np.append(first_postings, len(keys)).astype(np.int64)
    frequencies = np.minimum(counts, _MAX_FREQUENCY).astype(np.uint8)
    return Segment(rows, unique, offsets, docs, frequencies, lengths, atoms, atom_offsets)


def merge_segments(segments: Sequence[Segment]) -> Segment:
    """Merge segments into one of the same rows, in the same order, without sorting postings."""
    keys = np.unique(np.concatenate([segment.keys for segment in segments]))
    places = [np.searchsorted(keys, segment.keys) for segment in segments]
    counts = np.zeros(len(keys), dtype=np.int64)
    for segment, place in zip(segments, places, strict=True):
        counts[place] += np.diff(segment.offsets)
    offsets = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    docs = np.empty(int(offsets[-1]), dtype=np.int32)
    frequencies = np.empty(len(docs), dtype=np.uint8)
    free = offsets[:-1].copy()
    first_row = 0
    for segment, place in zip(segments, places, strict=True):
        sizes = np.diff(segment.offsets)
        # Each posting moves by as much as the start of its list.
        target = np.repeat(free[place] - segment.offsets[:-1], sizes)
        target += np.arange(len(segment.docs))
        docs[target] = segment.docs + np.int32(first_row)
        frequencies[target] = segment.frequencies
        free[place] += sizes
        first_row += segment.rows
    row_sizes = np.concatenate([np.diff(segment.atom_offsets) for segment in segments])
    return Segment(
        rows=first_row,
        keys=keys,
        offsets=offsets,
        docs=docs,
        frequencies=frequencies,
        lengths=np.concatenate([segment.lengths for segment in segments]),
        atoms=np.concatenate([segment.atoms for segment in segments]),
        atom_offsets=np.concatenate([[0], np.cumsum(row_sizes)]).astype(np.int64),
    )
