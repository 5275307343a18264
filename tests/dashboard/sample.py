"""A small database to look at: two people's chats, memories with a history, recalls, a villain."""

from datetime import UTC, datetime
from pathlib import Path

from memrecall.agent import Recaller, RecallOptions
from memrecall.memory import AsyncMemory, Importer, Library
from memrecall.scope import Permission, Scope
from memrecall.settings import Settings
from memrecall.store import Grant, NewRelation
from memrecall.types import NewMessage, Role

CHAT = Path(__file__).parents[2] / "fixtures" / "demo" / "chat.jsonl"
NOW = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)
VILLAIN = "mallory"
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
EVIL_TIES = [NewRelation(SCRIPT[:80], "<b>likes</b>", "peanuts")]
TALK = "talk-1"
SAID = (
    "I live in Oslo and my brother Tom works at Equinor.",
    "I moved to Lisbon last week. Now I live in Lisbon.",
    "I am allergic to peanuts. My favourite tea is genmaicha.",
    "My favourite tea is sencha now, not genmaicha any more.",
)
ASKED = {
    "maya": ("Where does Tom work?", "Who has my spare key?", "When does my passport expire?"),
    "lin": ("我对什么过敏来着？", "按照我之前的数据库配置来"),
}


def sample_settings(location: str, folder: Path, embedder: str = "hash") -> Settings:
    """Settings for a database in a folder of its own."""
    return Settings(db=location, embedder=embedder, cache_dir=str(folder))


async def fill(library: Library) -> None:
    """Store everything that the pages are tested with."""
    await Importer(library).run(CHAT, strict=True)
    memory = AsyncMemory(user_id="maya", session_id=TALK, library=library)
    for text in SAID:
        await memory.add([{"role": "user", "content": text}])
    await memory.summarize()
    await memory.close()
    options = RecallOptions(keep_traces_days=30)
    for user, questions in ASKED.items():
        for question in questions:
            await Recaller(library, Scope(user), None, options).recall(question, as_of=None)
    await _add_villain(library)


async def _add_villain(library: Library) -> None:
    """Somebody whose every word is a script."""
    scope = Scope(VILLAIN, session_id=SCRIPT[:40])
    said = NewMessage(
        message_id="evil-1",
        role=Role.USER,
        speaker=SCRIPT[:80],
        content=f"peanuts {SCRIPT}",
        ts=NOW,
    )
    await library.add_messages(scope, [said])
    memory = AsyncMemory(user_id=VILLAIN, session_id=SCRIPT[:40], library=library)
    await memory.add([{"role": "user", "content": f"peanuts {SCRIPT}"}], infer=False)
    await memory.close()
    await library.store.graph(scope).add({SCRIPT[:80]: "thing", "peanuts": "thing"}, EVIL_TIES)
    await Recaller(library, Scope(VILLAIN), None, RecallOptions(keep_traces_days=30)).recall(
        f"peanuts {SCRIPT}"
    )


async def make_keys(library: Library) -> dict[str, str]:
    """Keys: one that opens maya, one that opens everybody and the service, one that reads."""
    keys = library.store.keys
    everything = frozenset({Permission.OPERATOR})
    return {
        "maya": (await keys.create(Grant(frozenset({"maya"}))))[1],
        "all": (await keys.create(Grant(None, permissions=everything)))[1],
        "reader": (await keys.create(Grant(None, read_only=True)))[1],
    }
