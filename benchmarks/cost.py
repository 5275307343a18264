"""What storing messages costs if a model reads them: calls and prompt tokens, beside mem0.

    pip install -e '.[peers]'
    python benchmarks/cost.py [--data FOLDER] [--messages 100] [--json FILE]

Both store the same messages of one user through `add`, one per call and then twenty per call, with
a stub as the model: it counts the prompts, and answers with the last message as the only fact, so
that later prompts hold what is known. Tokens are estimated: four letters or one Chinese character.
Without a model memrecall makes no call, nor does mem0 with `infer=False`. All stays local.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from benchmarks.evaluation_sets import read_evaluation_set  # noqa: E402
from benchmarks.peers import SWITCHES, Bridge, make_mem0  # noqa: E402
from benchmarks.report import Figures, print_figures, say  # noqa: E402
from memrecall import Memory  # noqa: E402
from memrecall.embedding import make_embedder  # noqa: E402
from memrecall.model.prompts import load_prompt  # noqa: E402
from memrecall.settings import Settings  # noqa: E402
from memrecall.testing import ScriptedClient, Step, repeat  # noqa: E402
from memrecall.testing import say as reply  # noqa: E402
from memrecall.text_length import estimate_tokens  # noqa: E402

Json = dict[str, Any]

SIZES = (1, 20)  # messages per call of `add`
_SUMMARISE = [load_prompt("summarise", language) for language in ("en", "zh")]
_DOES_NOT_SHOW = (
    "what the models answer, and so neither output tokens nor the quality of the memories; a model"
    " that finds more or fewer facts changes the prompts of both"
)


class Meter:
    """Counts prompts; `fact` is what the stub answers with."""

    def __init__(self) -> None:
        self.calls = self.tokens = self.summaries = 0
        self.fact: Json = {}

    def count(self, prompt: str) -> None:
        """Count a prompt."""
        self.calls += 1
        self.tokens += estimate_tokens(prompt)

    def answer(self, request: Any) -> Step:
        """Count a request of memrecall; answer the prompts `extract` and `summarise`."""
        self.count("".join(str(message.content) for message in request.messages))
        is_summary = request.messages[0].content in _SUMMARISE
        self.summaries += is_summary
        facts = {"facts": [self.fact], "relations": [], "entities": []}
        return reply(json.dumps({"summary": self.fact["text"]} if is_summary else facts))

    def generate_response(self, messages: Sequence[Json], **_options: object) -> str:
        """Count a request of mem0; answer in its format."""
        self.count("".join(message["content"] for message in messages))
        return json.dumps({"memory": [{"id": "0", "text": self.fact["text"]}]})


def open_memrecall(folder: Path, meter: Meter) -> Any:
    """Open `Memory` with the stub."""
    settings = Settings(db=str(folder / "memrecall.db"), cache_dir=str(folder))
    return Memory(settings=settings, llm=ScriptedClient(repeat(meter.answer, 1_000_000)))


def open_mem0(folder: Path, meter: Meter) -> Any:
    """Open mem0 with the stub and memrecall's embedder."""
    embedder = make_embedder("local")
    assert embedder is not None
    memory = make_mem0(folder, embedder.dimensions, Bridge(embedder).lists)
    memory.llm = meter
    return memory


SYSTEMS: dict[str, Callable[[Path, Meter], Any]] = {"memrecall": open_memrecall, "mem0": open_mem0}


def measure(name: str, texts: Sequence[str], size: int) -> dict[str, float]:
    """Return the calls and prompt tokens per 1,000 messages."""
    say(f"{name}, {size} a call")
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        memory = SYSTEMS[name](Path(folder), meter)
        for start in range(0, len(texts), size):
            turn = texts[start : start + size]
            meter.fact = {"text": turn[-1], "sources": [len(turn)]}
            memory.add([{"role": "user", "content": text} for text in turn], user_id="bench")
        memory.close()
    thousands = len(texts) / 1_000
    return {
        "model calls": meter.calls / thousands,
        "of these for summaries": meter.summaries / thousands,
        "prompt tokens": meter.tokens / thousands,
    }


def main() -> None:
    """Measure both systems with both sizes; print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REPOSITORY / "fixtures" / "eval")
    parser.add_argument("--messages", type=int, default=100, help="the first ones of the folder")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    corpus = read_evaluation_set(options.data).corpus
    texts = [entry.message.content for _, entry in corpus.messages[: options.messages]]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(SWITCHES, MEM0_DIR=folder)
        figures: Figures = {}
        for name, size in itertools.product(options.systems, SIZES):
            figures[f"{name}, {size} a call"] = measure(name, texts, size)
    print_figures(f"per 1,000 messages, {options.data.name}", figures)
    if options.json is not None:
        about = {
            "does_not_show": _DOES_NOT_SHOW,
            "memrecall": version("memrecall-agent"),
            **({"mem0": version("mem0ai")} if "mem0" in options.systems else {}),
            "messages": len(texts),
            "characters": sum(map(len, texts)),
        }
        content = json.dumps({**about, "per_1000_messages": figures}, indent=1)
        options.json.write_text(content + "\n", "utf-8")


if __name__ == "__main__":
    main()
