"""Record the cassette of the sample: a model's answers about the chats of `memrecall serve --demo`.

`make cassettes` records the answers in `fixtures/demo/answers.json`, which name messages by their
ids and replaced memories by their texts. With `--model`, a model is asked instead:

    python -m tests.dashboard.record_sample --model openai:gpt-5-mini
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memrecall.dashboard.sample import SAMPLE_CASSETTE, SAMPLE_TIME, add_sample_chats
from memrecall.library.library import Library
from memrecall.model.cassette import RecordingClient
from memrecall.model.client import Request
from memrecall.model.openai_client import make_client
from memrecall.model.protocol import ChatCompletionClient
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, Step, say
from memrecall.types import format_time

FOLDER = Path(__file__).parents[2] / "fixtures" / "demo"
ANSWERS: dict[str, Any] = json.loads((FOLDER / "answers.json").read_text("utf-8"))
MESSAGES: dict[str, dict[str, Any]] = {
    message["message_id"]: message
    for message in map(json.loads, (FOLDER / "chat.jsonl").read_text("utf-8").splitlines())
}
IDS = {message["content"]: name for name, message in MESSAGES.items()}


def answer(request: Request) -> Step:
    """Return the written answer to a request, with the numbers that the request gives."""
    lines = [json.loads(line) for line in str(request.messages[-1].content).splitlines()]
    numbers = {IDS[line["text"]]: line["id"] for line in lines if "id" in line}
    known = {line["text"]: line["known"] for line in lines if "known" in line}
    written = ANSWERS[MESSAGES[next(iter(numbers))]["session_id"]]
    facts = [
        {
            **fact,
            "sources": [numbers[name] for name in fact["sources"]],
            "replaces": [known[text] for text in fact.get("replaces", [])],
        }
        for fact in written["facts"]
    ]
    relations = [
        {**relation, "sources": [numbers[name] for name in relation["sources"]]}
        for relation in written["relations"]
    ]
    reply = {"facts": facts, "relations": relations, "entities": written["entities"]}
    return say(json.dumps(reply, ensure_ascii=False))


async def record(client: ChatCompletionClient, path: Path) -> int:
    """Write the cassette; return the number of memories that the answers make."""
    about = {"now": format_time(SAMPLE_TIME)}
    with TemporaryDirectory(prefix="memrecall-") as folder:
        settings = Settings(db=f"{folder}/sample.db", embedder="hash", snapshots=False)
        async with await Library.open(settings) as library:
            recorder = RecordingClient(client, path, overwrite=True, about=about)
            results = await add_sample_chats(library, recorder)
    problems = [problem for result in results for problem in result["problems"]]
    if problems:
        raise SystemExit("\n".join(problems))
    return sum(len(result["results"]) for result in results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record the cassette of the sample.")
    parser.add_argument("--model", help="ask this model instead of reading answers.json")
    name = parser.parse_args().model
    source = make_client(Settings(model=name)) if name else ScriptedClient([answer] * len(ANSWERS))
    assert source is not None
    memories = asyncio.run(record(source, SAMPLE_CASSETTE))
    sys.stdout.write(f"{SAMPLE_CASSETTE.name}: {memories} memories\n")
