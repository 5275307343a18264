"""Fill a database with messages of several users; a script that other checkouts run too.

It uses their package, so it imports only names that all of them have. The arguments are a JSON
object: `location`, `folder`, `data`, `repository` and `users`, the number of messages by user.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.corpus import load_corpus
from benchmarks.databases import Place, opened, write
from benchmarks.vectors import StoredVectors, made_up_vectors
from memrecall.embedding import make_embedder


async def fill(options: dict[str, Any]) -> None:
    """Store each user's messages with random vectors, which are as fast to search as real ones.

    All users say the same, each as far as their number of messages goes.
    """
    corpus = load_corpus(Path(options["data"]), Path(options["repository"]))
    place = Place(options["location"], Path(options["folder"]))
    live = make_embedder("local")
    assert live is not None
    await live.embed(["dimensions"])
    turns = list(corpus.turns(max(options["users"].values())))
    matrix = made_up_vectors(len(turns), live.dimensions)
    known = StoredVectors([turn.text for turn in turns], matrix, live)
    async with opened(place, known) as library:
        for user, count in options["users"].items():
            await write(library, user, turns[:count])
    await live.close()


if __name__ == "__main__":
    asyncio.run(fill(json.loads(sys.argv[1])))
