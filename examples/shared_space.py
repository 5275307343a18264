"""A space that two people share: Ann creates it, Ben joins, contributes, promotes and leaves.

No model is needed: with `infer=False` each statement is a memory as it was said. Each person has a
memory of their own, which the other never sees; a search over the space as well says where each
result is from.
"""

import tempfile
from pathlib import Path

from memrecall import Memory, Settings
from memrecall.errors import Forbidden, NotFound
from memrecall.memory.results import StoredItem

TRIP = "summer-trip"


def say(day: int, text: str) -> dict[str, str]:
    """Return a message of May 2026."""
    return {"role": "user", "ts": f"2026-05-{day:02}T09:00:00Z", "content": text}


def describe(item: StoredItem) -> str:
    """Return a search result and where it is from."""
    said = f"{item['memory']} ({str(item['valid_from'])[:10]}"
    return (
        f"{said}, space: {item['space']}, by {item['author']})" if "space" in item else f"{said})"
    )


def show(asked_by: str, memory: Memory, query: str) -> list[StoredItem]:
    """Print the best two memories; return them."""
    hits = memory.search(query, limit=2, kinds="memory")["results"]
    print(f"{asked_by} asks: {query}")
    for hit in hits:
        print(f"  {describe(hit)}")
    return hits


def run(everyone: Memory) -> None:
    """Let Ann and Ben plan a trip."""
    ann, ben = everyone.bind(user_id="ann"), everyone.bind(user_id="ben")

    ann.create_space(TRIP, name="Summer trip", description="What we know for the trip")
    ann.space(TRIP).set_member("ann", "admin", name="Ann")
    ann.space(TRIP).set_member("ben", "contributor", name="Ben")
    print("members:", {grant["name"]: grant["role"] for grant in ben.space(TRIP).members()})

    # Writes go to the space only where it is named. Joyce is Ann's sister and Ben's wife.
    (home,) = ann.space(TRIP).add(say(2, "My sister Joyce lives in Lisbon."), infer=False)[
        "results"
    ]
    ben.space(TRIP).add(say(3, "My wife Joyce lives in Porto."), infer=False)
    (allergy,) = ben.add(say(4, "I am allergic to peanuts."), infer=False)["results"]
    try:
        ben.space(TRIP).update(home["id"], "Joyce lives in Porto.")
    except Forbidden as error:
        print(f"Ben cannot change what Ann said: {error}")

    ann_and_trip, ben_and_trip = ann.bind(spaces=(TRIP,)), ben.bind(spaces=(TRIP,))
    show("Ben", ben_and_trip, "Where does Joyce live?")  # both statements, with their authors
    show("Ben", ben_and_trip, "Who is allergic to peanuts?")  # his own, which Ann does not see

    copy = ben.promote(allergy["id"], TRIP)  # a copy with its message; the original stays his
    show("Ann", ann_and_trip, "Who is allergic to peanuts?")
    for name, key in (("original", allergy["id"]), ("copy", copy["id"])):
        seen = ben_and_trip.who_can_see(key)
        members = [f"{member['member']} ({member['role']})" for member in seen["members"]]
        print(f"who can see the {name}: {seen['owner']['kind']} {seen['owner']['id']}", *members)
    (why,) = ann_and_trip.why_seen(copy["id"])
    print(f"why Ann sees the copy: {why['reason']}; {why['author']} wrote it")

    ben.demote(copy["id"], TRIP)
    print("after demote, the copy is", ann_and_trip.get(copy["id"]))
    ben.space(TRIP).leave()
    for space_id in (TRIP, "no-such-space"):  # the same answer: strangers learn nothing
        try:
            ben.space(space_id).search("Where does Joyce live?")
        except NotFound as error:
            print(f"Ben in {space_id}: {error.code}, {error}")
    log = reversed(ann.space(TRIP).audit())
    print("audit:", *(f"{entry['actor']} {entry['action']}" for entry in log), sep="\n  ")


def main() -> None:
    """Run the example."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        settings = Settings(db=str(Path(folder) / "memrecall.db"), snapshots=False)
        with Memory(settings=settings) as everyone:
            run(everyone)


if __name__ == "__main__":
    main()
