"""Results of `Memory`: plain dicts and lists that JSON and pickle take."""

import json
import pickle
from pathlib import Path
from typing import Any

from memrecall import Memory
from tests.extractors import SentenceExtractor

from .conftest import make_settings


def test_results_are_plain_dicts_and_lists(tmp_path: Path) -> None:
    settings, extractor = make_settings(str(tmp_path / "m.db")), SentenceExtractor()
    with Memory(settings=settings, extractor=extractor, user_id="ann") as memory:
        result = memory.add("I am allergic to peanuts.")
        key = result["results"][0]["id"]
        answers: list[Any] = [result, memory.search("peanuts"), memory.get_all(), memory.get(key)]
        answers += [memory.update(key, "Ann is allergic."), memory.history(key), memory.graph()]
        answers.append(memory.graph("user"))
    for answer in answers:
        plain = json.loads(json.dumps(answer))
        assert type(answer) in (dict, list)
        assert answer == plain
        assert repr(answer) == repr(plain)
        assert pickle.loads(pickle.dumps(answer)) == plain  # noqa: S301
