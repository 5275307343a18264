"""Databases with messages of several users, for the benchmarks of the service."""

from collections.abc import Mapping

from benchmarks.corpus import Corpus
from benchmarks.databases import Place, opened, write
from benchmarks.vectors import StoredVectors, made_up_vectors
from memrecall.embedding import make_embedder


async def fill(place: Place, corpus: Corpus, users: Mapping[str, int]) -> None:
    """Store so many messages of each user, with vectors that are as fast to search as real ones.

    All users say the same, each as far as their number of messages goes.
    """
    live = make_embedder("local")
    assert live is not None
    await live.embed(["dimensions"])
    turns = list(corpus.turns(max(users.values())))
    matrix = made_up_vectors(len(turns), live.dimensions)
    known = StoredVectors([turn.text for turn in turns], matrix, live)
    async with opened(place, known) as library:
        for user, count in users.items():
            await write(library, user, turns[:count])
    await live.close()
