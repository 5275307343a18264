"""Ordinary text without calls, from templates and from real files."""

import itertools
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.cases import read_rows

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(sysconfig.get_paths()["stdlib"])

TAGS = read_rows("leaks", "tags")
MENTIONS = read_rows("leaks", "mentions")
TOKENS = read_rows("leaks", "tokens")
QUOTED = read_rows("leaks", "quoted")
NAMES = read_rows("leaks", "names")
OBJECTS = read_rows("leaks", "objects")
MARKUP = read_rows("leaks", "markup")
ELEMENTS = read_rows("leaks", "elements")
LATEX = read_rows("leaks", "latex")
ENVIRONMENTS = read_rows("leaks", "environments")
SENTENCES = read_rows("leaks", "sentences")
FILLERS = read_rows("leaks", "fillers")


def _fill(templates: list[str], *fillers: list[str]) -> Iterator[str]:
    for template, filler in itertools.product(templates, itertools.product(*fillers)):
        yield template.format(*filler)


def _fill_templates() -> Iterator[str]:
    """Yield samples from the templates above."""
    for template, first in itertools.product(MENTIONS, TAGS):
        yield template.replace("{}", first)
    for template, token in itertools.product(QUOTED, TOKENS):
        yield template.replace("{}", token)
    yield from _fill(OBJECTS, NAMES)
    yield from _fill(MARKUP, ELEMENTS)
    yield from _fill(LATEX, ENVIRONMENTS)
    for template, filler in itertools.product(SENTENCES, FILLERS):
        yield template.format(*filler)


def _read_messages() -> Iterator[str]:
    """Yield the messages of the project's fixtures."""
    for path in ("eval/corpus.jsonl", "demo/chat.jsonl"):
        for line in (ROOT / "fixtures" / path).read_text("utf-8").splitlines():
            yield str(json.loads(line)["content"])
            yield line


def _read_documents() -> Iterator[str]:
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "prompts").glob("*.md"),
    ]:
        text = path.read_text("utf-8")
        yield text
        yield from text.split("\n\n")


def _read_python_sources() -> Iterator[str]:
    """Yield Python sources, whole, in parts and inside a fence."""
    names = [
        *("argparse", "ast", "dataclasses", "functools", "html/parser", "inspect", "json/decoder"),
    ]
    names += ["logging/__init__", "re/_parser", "string", "tokenize", "typing", "xml/dom/minidom"]
    for name in names:
        source = (LIBRARY / f"{name}.py").read_text("utf-8")
        yield source
        yield from source.split("\n\n")
        yield f"Here it is:\n```python\n{source}\n```\nDone."


def _has_closed_fences(sample: str) -> bool:
    """Return True if every fence is closed; text after an open one is not filtered."""
    return sample.count("```") % 2 == 0


TEMPLATE_SAMPLES = list(dict.fromkeys(_fill_templates()))
REAL_SAMPLES = list(
    dict.fromkeys(
        filter(
            _has_closed_fences,
            itertools.chain(_read_messages(), _read_documents(), _read_python_sources()),
        )
    )
)
SAMPLES = TEMPLATE_SAMPLES + REAL_SAMPLES
