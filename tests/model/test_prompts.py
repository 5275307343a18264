"""Prompt files, found by name and by their exact text."""

from pathlib import Path

import pytest

from memrecall.errors import NotFound
from memrecall.model import prompts
from memrecall.model.prompts import FILE_NAME, load_prompt, prompt_name
from memrecall.types import Language

PACKAGED_PROMPTS: list[tuple[str, Language]] = [
    (match[1], "zh" if match[2] == "zh" else "en")
    for file in sorted((Path(__file__).parents[2] / "prompts").glob("*.md"))
    if (match := FILE_NAME.fullmatch(file.name))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of prompts that replaces the real one."""
    files = {
        "recall.en.md": "\nRecall.\n",
        "recall.zh.md": "回忆。\n",
        "README.md": "# Prompts",
        "Notes.en.md": "no prompt",
        "recall.fr.md": "Rappelle.",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(prompts, "_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_prompt_is_the_stripped_file() -> None:
    assert load_prompt("recall", "en") == "Recall."
    assert load_prompt("recall", "zh") == "回忆。"
    assert load_prompt("recall", "en") is load_prompt("recall", "en")


@pytest.mark.usefixtures("folder")
def test_prompt_name_needs_the_exact_text() -> None:
    assert prompt_name("Recall.") == ("recall", "en")
    assert prompt_name("回忆。") == ("recall", "zh")
    assert prompt_name("Recall. ") is None
    assert prompt_name("# Prompts") is None


@pytest.mark.usefixtures("folder")
def test_unknown_prompt_error_lists_prompts() -> None:
    with pytest.raises(NotFound, match=r"no prompt README\.en\. There are: recall\.en, recall\.zh"):
        load_prompt("README", "en")


def test_shipped_prompts_are_distinct() -> None:
    for name, language in PACKAGED_PROMPTS:
        assert prompt_name(load_prompt(name, language)) == (name, language)
    languages: dict[str, set[str]] = {}
    for name, language in PACKAGED_PROMPTS:
        languages.setdefault(name, set()).add(language)
    assert all(codes == {"en", "zh"} for codes in languages.values())
