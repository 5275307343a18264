"""Postings as arrays: an immutable run of rows, merged with its neighbour as the index grows.

`keys` are sorted; the rows of keys[i] are docs[offsets[i]:offsets[i+1]], counted from the segment's
first row, with their term frequencies beside them. `atoms` is the text itself as numbers, a break
after each row: phrases are looked up there.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrecall.text.tokens import BREAK, is_cjk

Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.int64]

BREAK_ID = 0


class Vocabulary(dict[str, int]):
    """Term to number; an unknown term gets the next one when looked up with []."""

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
        """For each number, whether the term is a character that forms bigrams."""
        return np.frombuffer(bytes(self._cjk), dtype=np.bool_)

    def starting_with(self, prefix: str) -> list[int]:
        """The numbers of all terms with that beginning."""
        return [number for term, number in self.items() if term.startswith(prefix)]

    def nbytes(self) -> int:
        """About how much memory this takes."""
        return 130 * len(self)


def bigram_key(first: int, second: int) -> int:
    """The key under which two neighbouring characters are filed together."""
    return (first << 32) | second


def bigram_keys(atoms: Ids, cjk: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], Keys]:
    """Where in `atoms` a bigram begins, and the bigrams' keys."""
    is_char = cjk[atoms]
    starts = np.flatnonzero(is_char[:-1] & is_char[1:])
    keys = (atoms[starts].astype(np.int64) << 32) | atoms[starts + 1]
    return starts, keys


Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
_MOST = 255  # a term said more often in one row counts as said this often


@dataclass(frozen=True, slots=True)
class Segment:
    """The postings and the text of some neighbouring rows."""

    rows: int
    keys: Keys
    offsets: npt.NDArray[np.int64]
    docs: Ids
    frequencies: npt.NDArray[np.uint8]
    lengths: Ids
    atoms: Ids
    atom_offsets: npt.NDArray[np.int64]

    def nbytes(self) -> int:
        """How much memory the arrays take."""
        arrays = (self.keys, self.offsets, self.docs, self.frequencies, self.lengths)
        return sum(a.nbytes for a in (*arrays, self.atoms, self.atom_offsets))

    def places(self, wanted: Keys) -> list[tuple[int, int]]:
        """For each wanted key, where its postings begin and end (equal: it has none)."""
        if not len(self.keys):
            return [(0, 0)] * len(wanted)
        at = np.searchsorted(self.keys, wanted)
        at[at == len(self.keys)] = 0
        hit = self.keys[at] == wanted
        starts = np.where(hit, self.offsets[at], 0)
        ends = np.where(hit, self.offsets[at + 1], 0)
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def _postings(self, choices: Ids) -> int:
        return sum(end - start for start, end in self.places(choices.astype(np.int64)))

    def rows_with_phrase(self, phrase: Sequence[Ids]) -> Ids:
        """The rows where atoms stand in this order; each place admits one of several atoms."""
        # Only the rarest place is looked for in the whole text; the others around it.
        rarest = min(range(len(phrase)), key=lambda at: self._postings(phrase[at]))
        starts = np.flatnonzero(np.isin(self.atoms, phrase[rarest])) - rarest
        starts = starts[(starts >= 0) & (starts + len(phrase) <= len(self.atoms))]
        for at, choices in enumerate(phrase):
            starts = starts[np.isin(self.atoms[starts + at], choices)]
        rows = np.searchsorted(self.atom_offsets, starts, side="right") - 1
        return np.unique(rows).astype(np.int32)


def build_segment(lines: Sequence[str], vocabulary: Vocabulary) -> Segment:
    """The segment of rows given by their search texts."""
    halves = [line.partition("\t") for line in lines]
    atoms, atom_offsets = _number([half[0] for half in halves], vocabulary, (BREAK_ID,))
    extras, extra_offsets = _number([half[2] for half in halves], vocabulary, ())
    row_of_atom = np.repeat(np.arange(len(lines), dtype=np.int32), np.diff(atom_offsets))
    row_of_extra = np.repeat(np.arange(len(lines), dtype=np.int32), np.diff(extra_offsets))
    starts, pairs = bigram_keys(atoms, vocabulary.cjk)
    spoken = atoms != BREAK_ID
    keys = np.concatenate([atoms[spoken].astype(np.int64), pairs, extras.astype(np.int64)])
    docs = np.concatenate([row_of_atom[spoken], row_of_atom[starts], row_of_extra])
    return _pack(len(lines), keys, docs, atoms, atom_offsets)


def _number(
    lines: Sequence[str], vocabulary: Vocabulary, ending: tuple[int, ...]
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """The terms of all lines as numbers in one run, and where each line begins."""
    numbers = array("i")  # four bytes a term: lists of Python's integers would take ten times that
    offsets = np.zeros(len(lines) + 1, dtype=np.int64)
    for at, line in enumerate(lines, 1):
        numbers.extend(map(vocabulary.__getitem__, line.split()))
        numbers.extend(ending)
        offsets[at] = len(numbers)
    return np.array(numbers, dtype=np.int32), offsets


def _pack(
    rows: int, keys: Keys, docs: Ids, atoms: Ids, atom_offsets: npt.NDArray[np.int64]
) -> Segment:
    """Count equal (key, row) pairs and sort them into postings."""
    lengths = np.bincount(docs, minlength=rows).astype(np.int32)
    order = np.lexsort((docs, keys))
    keys, docs = keys[order], docs[order]
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = (keys[1:] != keys[:-1]) | (docs[1:] != docs[:-1])
    begins = np.flatnonzero(first)
    counts = np.diff(np.append(begins, len(keys)))
    keys, docs = keys[begins], docs[begins]
    unique, offsets = _group(keys)
    frequencies = np.minimum(counts, _MOST).astype(np.uint8)
    return Segment(rows, unique, offsets, docs, frequencies, lengths, atoms, atom_offsets)


def _group(keys: Keys) -> tuple[Keys, npt.NDArray[np.int64]]:
    """The distinct values of sorted keys, and where each begins."""
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    begins = np.flatnonzero(first)
    return keys[begins], np.append(begins, len(keys)).astype(np.int64)


def merge_segments(segments: Sequence[Segment]) -> Segment:
    """One segment of the same rows in the same order. Nothing is sorted but the keys."""
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
        # Each posting moves by as much as its list's beginning does.
        target = np.repeat(free[place] - segment.offsets[:-1], sizes)
        target += np.arange(len(segment.docs))
        docs[target] = segment.docs + np.int32(first_row)
        frequencies[target] = segment.frequencies
        free[place] += sizes
        first_row += segment.rows
    return Segment(
        rows=first_row,
        keys=keys,
        offsets=offsets,
        docs=docs,
        frequencies=frequencies,
        lengths=np.concatenate([segment.lengths for segment in segments]),
        atoms=np.concatenate([segment.atoms for segment in segments]),
        atom_offsets=_join_offsets([segment.atom_offsets for segment in segments]),
    )


def _join_offsets(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    sizes = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
