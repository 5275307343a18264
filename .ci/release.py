"""Build the sdist and the wheel, check them, and recall once from the installed wheel.

Usage: python .ci/release.py [--out dist]
"""

import argparse
import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.message import Message
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Building writes into its source folder, so that a copy is built instead of the checkout.
SOURCES = ("memrecall", "prompts", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
REQUIRED_METADATA = ("Name", "Version", "Summary", "Requires-Python", "License-Expression")
RECALL = ("recall", "海鲜过敏", "--user", "lin", "--db", "chat.db", "--json")
MESSAGE = {
    "user_id": "lin",
    "message_id": "m1",
    "ts": "2026-01-26T10:47:00Z",
    "role": "user",
    "content": "我对海鲜过敏",
}


class ReleaseError(Exception):
    """A reason not to publish the files that were built."""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its output."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def build(source: Path, out: Path) -> tuple[Path, Path]:
    """Build the sdist from the sources and the wheel from the sdist."""
    if find_spec("build"):
        run(sys.executable, "-m", "build", "--outdir", out, source, cwd=source)
    else:
        backend = (
            "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
        )
        run(sys.executable, "-c", backend, out, cwd=source)
        pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
        run(*pip, "--wheel-dir", out, next(out.glob("*.tar.gz")), cwd=source)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def expected_files() -> set[str]:
    """Return the paths that the wheel must contain: modules, data files and prompts."""
    package = ROOT / "memrecall"
    files = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files = {name for name in files if not name.startswith("memrecall/prompts.d/")}
    return files | {
        f"memrecall/prompts.d/{path.name}" for path in (ROOT / "prompts").glob("*.??.md")
    }


def check_contents(sdist: Path, wheel: Path) -> None:
    """Check that both archives hold every file of the package, and the wheel nothing else."""
    wheel_files = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        sdist_files = {name.split("/", 1)[-1] for name in archive.getnames()}
    expected = expected_files()
    for name, files in ((wheel.name, wheel_files), (sdist.name, sdist_files)):
        if missing := sorted(expected - files):
            raise ReleaseError(
                f"{name} lacks {', '.join(missing)}; see package-data in pyproject.toml"
            )
    stray = {name for name in wheel_files - expected if ".dist-info/" not in name}
    if stray:
        raise ReleaseError(f"{wheel.name} contains {', '.join(sorted(stray))}")


def read_metadata(wheel: Path) -> Message:
    """Return the core metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def check_metadata(wheel: Path) -> str:
    """Check the metadata as a package index would; return the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = read_metadata(wheel)
    if missing := [field for field in REQUIRED_METADATA if not metadata.get(field)]:
        raise ReleaseError(f"the metadata lacks {', '.join(missing)}")
    if metadata["Description-Content-Type"] != "text/markdown" or not metadata.get_payload():
        raise ReleaseError("the long description is missing or not text/markdown")
    version = project["version"]
    source = (ROOT / "memrecall" / "__init__.py").read_text("utf-8")
    if metadata["Version"] != version or f'__version__ = "{version}"' not in source:
        raise ReleaseError(
            f"pyproject.toml, the wheel and __init__.py disagree on version {version}"
        )
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## {re.escape(version)}( |$)", changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section for {version}")
    return str(version)


def check_installation(wheel: Path, folder: Path, version: str) -> None:
    """Install the wheel into a clean environment, import a message and recall it."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    memrecall = programs / "memrecall"
    if run(memrecall, "--version", cwd=folder) != f"memrecall {version}\n":
        raise ReleaseError(f"the installed command is not memrecall {version}")
    (folder / "chat.jsonl").write_text(json.dumps(MESSAGE), "utf-8")
    run(memrecall, "import", "chat.jsonl", "--db", "chat.db", cwd=folder)
    if MESSAGE["content"] not in run(memrecall, *RECALL, cwd=folder):
        raise ReleaseError("the installed wheel does not recall a message that it has imported")


def main() -> None:
    """Build and check a release, then print its files with their checksums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go")
    out: Path = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        source.mkdir()
        run("cp", "-r", *(ROOT / name for name in SOURCES), source, cwd=ROOT)
        sdist, wheel = build(source, out)
        check_contents(sdist, wheel)
        version = check_metadata(wheel)
        check_installation(wheel, Path(temporary), version)
    for file in (sdist, wheel):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}")


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"release: {error}")
