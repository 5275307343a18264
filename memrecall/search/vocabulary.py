"""Numbers for the terms of one user, so that text becomes arrays."""

from collections.abc import Iterable

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
