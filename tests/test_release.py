"""Files that releases and contributors rely on: CI, pre-commit hooks, version, changelog."""

import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

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
    latest = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)
    assert latest is not None
    is_development = ".dev" in memrecall.__version__
    assert latest[1] == ("Unreleased" if is_development else memrecall.__version__)


def test_security_policy_covers_the_current_version() -> None:
    major, minor, *_ = memrecall.__version__.split(".")
    assert f"| {major}.{minor}.x | yes |" in read("SECURITY.md")


def test_files_name_the_distribution_by_its_own_name() -> None:
    """`memrecall` is another package on PyPI; ours is `memrecall-agent`."""
    git = ["git", "ls-files", "-z", "--", ".", ":!docs/upgrading.md"]
    names = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    other = re.compile(
        rb"(pip|pipx|tool) install (-\S+ )*['\"]?memrecall(?![-_]agent)|\bmemrecall\[[a-z{]"
    )
    files = [ROOT / name for name in names.split("\0") if name]
    assert [file for file in files if file.is_file() and other.search(file.read_bytes())] == []


def load_release_script() -> Any:
    spec = spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_release_finds_interpreters_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is named like a Python but does not run, such as a shim, is not one."""
    release = load_release_script()
    assert release.supported_versions() == ["3.11", "3.12", "3.13"]
    for name in ("PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    assert release.find_interpreter(f"3.{sys.version_info.minor}") is not None
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o700)
    assert release.find_interpreter("3.99") is None
    pyenv = tmp_path / "versions" / "3.99.1" / "bin" / "python"
    pyenv.parent.mkdir(parents=True)
    pyenv.write_text("#!/bin/sh\necho 3.99\n")
    pyenv.chmod(0o700)
    assert release.find_interpreter("3.99") == pyenv


def test_makefile_documents_every_phony_target() -> None:
    makefile = read("Makefile")
    (targets,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    documented = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert set(targets.split()) == documented
