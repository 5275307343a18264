"""Files that releases and contributors rely on: CI, pre-commit hooks, version, changelog."""

import re
import tomllib
from pathlib import Path

import memrecall

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_workflow_runs_the_ci_script() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert "run: .ci/run\n" in workflow
    assert 'python-version: "3.11"' in workflow
    assert "actions/checkout" in workflow


def test_pre_commit_uses_local_hooks_only() -> None:
    config = read(".pre-commit-config.yaml")
    assert re.findall(r"repo: (.+)", config) == ["local"]
    assert {"ruff-format", "ruff-check", "mypy"} <= set(re.findall(r"id: (.+)", config))


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["version"] == memrecall.__version__
    latest = re.search(r"^## (\d+\.\d+\.\d+)", read("CHANGELOG.md"), re.MULTILINE)
    assert latest is not None
    assert latest[1] == memrecall.__version__


def test_security_policy_covers_the_current_version() -> None:
    major, minor, _ = memrecall.__version__.split(".")
    assert f"| {major}.{minor}.x | yes |" in read("SECURITY.md")


def test_makefile_documents_every_phony_target() -> None:
    makefile = read("Makefile")
    (targets,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    documented = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert set(targets.split()) == documented
