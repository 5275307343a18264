"""Sample data: chats of two users, memories with a history, recalls, and a malicious user."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.agent import Recaller, RecallOptions
from memrecall.extraction.protocol import Entity, Extracted, Fact, KnownMemory, Relation, Utterance
from memrecall.memory import AsyncMemory, Importer, Library
from memrecall.scope import Permission, Scope
from memrecall.settings import Settings
from memrecall.store import Grant, NewRelation
from memrecall.types import NewMessage, Role
from tests.extractors import SentenceExtractor

CHAT = Path(__file__).parents[2] / "fixtures" / "demo" / "chat.jsonl"
NOW = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)
ATTACKER = "mallory"
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
MALICIOUS_RELATIONS = [NewRelation(SCRIPT[:80], "<b>likes</b>", "peanuts")]
SESSION = "talk-1"
STATEMENTS: dict[str, tuple[Fact, ...]] = {
    "I live in Oslo and my brother Tom works at Equinor.": (
        Fact("User lives in Oslo.", field="home", memory_type="user_profile"),
        Fact("User's brother Tom works at Equinor.", memory_type="relationship"),
    ),
    "I moved to Lisbon last week. Now I live in Lisbon.": (
        Fact("User moved to Lisbon.", field="home", memory_type="user_profile"),
    ),
    "I am allergic to peanuts. My favourite tea is genmaicha.": (
        Fact("User is allergic to peanuts.", memory_type="user_profile"),
        Fact("User's favourite tea is genmaicha.", field="tea", memory_type="user_preference"),
    ),
    "My favourite tea is sencha now, not genmaicha any more.": (
        Fact("User's favourite tea is sencha.", field="tea", memory_type="user_preference"),
    ),
}
QUESTIONS = {
    "maya": ("Where does Tom work?", "Who has my spare key?", "When does my passport expire?"),
    "lin": ("我对什么过敏来着？", "按照我之前的数据库配置来"),
}

RELATIONS = {
    "User's brother Tom works at Equinor.": ("Tom", "works_at", "Equinor"),
    "User is allergic to peanuts.": ("User", "allergic_to", "peanuts"),
}

TEAM = "team-x"  # a space of Ann, Ben and Cleo, each with another role
MEMBERS = {"ann": "admin", "ben": "contributor", "cleo": "reader"}


def sample_settings(location: str, folder: Path, embedder: str = "hash") -> Settings:
    """Return the settings of a library on this database."""
    return Settings(db=location, embedder=embedder, cache_dir=str(folder))


class StatementExtractor(SentenceExtractor):
    """Finds the facts of `STATEMENTS`; one with a field replaces what is known of the field."""

    async def extract(
        self, utterances: Sequence[Utterance], *, known: Sequence[KnownMemory] = (), **_: Any
    ) -> Extracted:
        facts, relations = [], []
        for said in utterances:
            for fact in STATEMENTS.get(said.text, ()):
                same = (memory for memory in known if fact.field and memory.field == fact.field)
                ended = tuple(memory.memory_key for memory in same)
                sources = (said.message_id,)
                facts.append(replace(fact, source_ids=sources, valid_from=said.ts, replaces=ended))
                if fact.text in RELATIONS:
                    relations.append(Relation(*RELATIONS[fact.text], sources, said.ts))
        names = {name for each in relations for name in (each.source, each.destination)}
        return Extracted(tuple(facts), tuple(map(Entity, sorted(names))), tuple(relations))


async def add_facts(
    database: Path, user: str, *texts: str, first: int = 0, ts: datetime | None = None
) -> None:
    """Store texts of a user as messages m0, m1, …, and the facts that an extractor finds.

    The server of a test has no model; it reads what is stored here.
    """
    async with (
        await Library.open(sample_settings(str(database), database.parent)) as library,
        AsyncMemory(user_id=user, library=library, extractor=SentenceExtractor()) as memory,
    ):
        for number, text in enumerate(texts, first):
            message = {"role": "user", "content": text, "message_id": f"m{number}", "ts": ts}
            await memory.add([message])


async def fill_library(library: Library) -> None:
    """Store the sample data."""
    await Importer(library).run(CHAT, strict=True)
    extractor = StatementExtractor()
    memory = AsyncMemory(user_id="maya", session_id=SESSION, library=library, extractor=extractor)
    for text in STATEMENTS:
        await memory.add([{"role": "user", "content": text}])
    await memory.summarize()
    await memory.close()
    options = RecallOptions(keep_traces_days=30)
    for user, questions in QUESTIONS.items():
        for question in questions:
            await Recaller(library, Scope(user), None, options).recall(question, as_of=None)
    await _add_attacker(library)
    await _add_space(library)


async def find_ids(library: Library) -> dict[str, str]:
    """Return the generated ids of sample rows that have pages."""
    scope = Scope("maya")
    recalls = (await library.store.traces(scope).page()).items
    memories = (await library.store.memories(scope).page()).items
    return {
        "recall": next(item.trace_id for item in recalls if "spare key" in item.query),
        "memory": next(item.memory_key for item in memories if "sencha" in item.content),
        "shared": (await library.store.traces(Scope("ann")).page()).items[0].trace_id,
    }


async def _add_attacker(library: Library) -> None:
    """Store a user with a script in every text."""
    scope = Scope(ATTACKER, session_id=SCRIPT[:40])
    message = NewMessage(
        message_id="evil-1",
        role=Role.USER,
        speaker=SCRIPT[:80],
        content=f"peanuts {SCRIPT}",
        ts=NOW,
    )
    await library.add_messages(scope, [message])
    memory = AsyncMemory(user_id=ATTACKER, session_id=SCRIPT[:40], library=library)
    await memory.add([{"role": "user", "content": f"peanuts {SCRIPT}"}], infer=False)
    await memory.close()
    await library.store.graph(scope).add(
        {SCRIPT[:80]: "thing", "peanuts": "thing"}, MALICIOUS_RELATIONS
    )
    await Recaller(library, Scope(ATTACKER), None, RecallOptions(keep_traces_days=30)).recall(
        f"peanuts {SCRIPT}"
    )


async def _add_space(library: Library) -> None:
    """Store a space with a memory of each writer, and a recall that finds one of them."""
    async with AsyncMemory(library=library) as memory:
        ann = memory.bind(user_id="ann")
        await ann.add("My desk is by the window.", infer=False)
        await ann.create_space(TEAM, name="Team X", description="Plans of the team.")
        for member, role in MEMBERS.items():
            await ann.space(TEAM).set_member(member, role, name=member.title())
        for member, text in (
            ("ann", "The office is in Rome."),
            ("ben", "The launch is on Friday."),
        ):
            message = [{"role": "user", "content": text}]
            await memory.bind(user_id=member).space(TEAM).add(message, infer=False)
    scope = Scope("ann", spaces=(TEAM,))
    options = RecallOptions(keep_traces_days=30)
    await Recaller(library, scope, None, options).recall("When is the launch?")


async def make_keys(library: Library) -> dict[str, str]:
    """Create two keys for maya, one of them trusted, an operator key, and a read-only key."""
    keys = library.store.keys
    operator = frozenset({Permission.OPERATOR})
    sensitive = frozenset({Permission.SENSITIVE})
    return {
        "maya": (await keys.create(Grant(frozenset({"maya"}))))[1],
        "all": (await keys.create(Grant(None, permissions=operator)))[1],
        "trusted": (await keys.create(Grant(frozenset({"maya"}), permissions=sensitive)))[1],
        "reader": (await keys.create(Grant(None, read_only=True)))[1],
        **{name: (await keys.create(Grant(frozenset({name}))))[1] for name in (*MEMBERS, "dora")},
    }
