"""The transcripts, examples and links of README and docs."""

import ast
import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from .cases import check_each
from .documents import (
    ROOT,
    make_clone,
    make_environment,
    open_shell,
    read_blocks,
    run_document,
    without_times,
)

MEMRECALL = (sys.executable, "-c", "from memrecall.cli import main; main()")
READMES = ["README.md", "README.zh.md"]
TUTORIALS = ["docs/tutorial.md", "docs/tutorial.zh.md"]
EXPLANATIONS = ["docs/how-it-works.md", "docs/how-it-works.zh.md"]
FOR_ASSISTANTS = "docs/llms.txt"
NEEDED = ("bash", "curl", "git", "grep")
PROGRAMS = [shutil.which(name) for name in NEEDED]
DOCS = sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))


def blocks(name: str, kind: str) -> list[str]:
    return [text for block_kind, text in read_blocks(name) if block_kind == kind]


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.timeout(600)  # starts several processes, one after the other
@pytest.mark.skipif(None in PROGRAMS, reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.parametrize("name", [*READMES, "docs/http.md"])
def test_blocks_run_in_order_in_a_fresh_clone(name: str, tmp_path: Path) -> None:
    clone = make_clone(tmp_path)
    run_document(name, clone, environment=clone / ".venv")


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.timeout(600)
@pytest.mark.skipif(None in PROGRAMS, reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.parametrize("name", [*TUTORIALS, *EXPLANATIONS, FOR_ASSISTANTS])
def test_blocks_run_in_an_empty_folder(name: str, tmp_path: Path) -> None:
    make_environment(tmp_path / ".venv", ROOT)
    folder = tmp_path / "empty"
    folder.mkdir()
    run_document(name, folder, environment=tmp_path / ".venv")


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.skipif(None in PROGRAMS, reason=f"needs {', '.join(NEEDED)}")
def test_recall_transcript_matches(tmp_path: Path) -> None:
    (transcript,) = blocks("docs/recall.md", "console")
    command, expected = transcript.split("\n", 1)
    with open_shell(make_clone(tmp_path)) as shell:
        shell.run(
            "source .venv/bin/activate\nmemrecall import fixtures/demo/chat.jsonl --db chat.db\n"
        )
        printed = shell.run(command.removeprefix("$ ") + "\n")
    assert without_times(printed) == without_times(expected)


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.parametrize("name", READMES)
def test_mcp_configuration_starts_a_server(name: str, tmp_path: Path) -> None:
    (text,) = blocks(name, "json")
    server = json.loads(text)["mcpServers"]["memrecall"]
    assert server["command"] == "memrecall"
    *arguments, _ = server["args"]  # the last one is the database
    call = [*MEMRECALL, *arguments, str(tmp_path / "memory.db")]
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(message) + "\n")
        answer = process.stdout.readline()
        process.stdin.close()
    assert json.loads(answer) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert process.returncode == 0


def outline(text: str) -> list[str]:
    """Return headings, kinds of blocks and links, except the one to the other language."""
    parts = re.findall(r"^(#+) |^```(\w*)$|\]\(([^)]+)\)", text, re.MULTILINE)
    names = ["".join(part).replace(".zh.", ".") for part in parts]
    return [name for name in names if name not in ("README.md", "tutorial.md")]


def test_translations_have_the_same_structure() -> None:
    def check(pair: tuple[str, str]) -> None:
        english, chinese = ((ROOT / name).read_text("utf-8") for name in pair)
        assert outline(english) == outline(chinese)

    check_each([(names[0], names[1]) for names in (READMES, TUTORIALS, EXPLANATIONS)], check)


def test_pictures_quote_what_was_said() -> None:
    """The messages in a picture are those of the demo or of the example beside it."""
    demo = (ROOT / "fixtures" / "demo" / "chat.jsonl").read_text("utf-8")

    def check(name: str) -> None:
        page = (ROOT / name).read_text("utf-8")
        for picture in re.findall(r"\]\((images/[^)]+\.svg)\)", page):
            drawing = (ROOT / "docs" / picture).read_text("utf-8")
            for text in re.findall(r'class="(?:said|old)"[^>]*>([^<]*)<', drawing):
                assert text.removesuffix(" …") in demo + page, (picture, text)

    check_each(EXPLANATIONS, check)


def test_index_for_assistants_has_the_form_of_llms_txt() -> None:
    """A title, a summary, text without headings, then sections of links with a line on each."""
    head, *sections = (ROOT / FOR_ASSISTANTS).read_text("utf-8").split("\n## ")
    assert re.match(r"# memrecall\n\n> [^\n]+\n\n", head)
    items = [line for section in sections for line in section.splitlines()[1:] if line]
    assert items
    link = re.compile(r"- \[[^]]+\]\([a-z0-9-]+\.md\): \S.*")
    assert [item for item in items if not link.fullmatch(item)] == []


def names_of(module: str) -> set[str]:
    """Return what a module defines; one for an agent framework, which is not installed, is read."""
    if not module.startswith("memrecall.integrations."):
        return {*vars(import_module(module)), *getattr(import_module(module), "__all__", ())}
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")
    nodes = ast.parse(source).body
    return {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef)}


def test_imports_in_documents_work() -> None:
    """What a document imports exists, also where its examples need a model or a server to run."""

    def check(name: str) -> None:
        for block in (*blocks(name, "py"), *blocks(name, "python")):
            for node in ast.walk(ast.parse(block, name)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memrecall"):
                    names = names_of(str(node.module))
                    assert [alias.name for alias in node.names if alias.name not in names] == []

    check_each([*READMES, *DOCS], check)


def test_relative_links_exist() -> None:
    def check(name: str) -> None:
        file = ROOT / name
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text("utf-8")):
            assert target.startswith("https://") or (file.parent / target).exists(), target

    check_each([*READMES, "CONTRIBUTING.md", FOR_ASSISTANTS, *DOCS], check)
