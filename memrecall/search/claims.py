"""Unconfirmed claims: stored with the keys of what they contradict, and ranked after it."""

from collections.abc import Sequence
from dataclasses import replace

from memrecall.search.results import Hit


def put_claims_last(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits, however scored, with each claim after and below what it conflicts with."""
    claims = [hit for hit in hits if hit.conflicts_with]
    ordered = list(hits)
    for claim in claims:
        places = [at for at, hit in enumerate(ordered) if hit.key in claim.conflicts_with]
        place = next(at for at, hit in enumerate(ordered) if hit.key == claim.key)
        if places and place < max(places):
            last = min(claim, ordered[max(places)], key=lambda hit: hit.score)
            moved = replace(
                ordered.pop(place), score=last.score, below_threshold=last.below_threshold
            )
            ordered.insert(max(places), moved)
    return ordered
