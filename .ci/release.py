"""Build the sdist and the wheel, check them, and use the wheel on every supported Python.

Usage: python .ci/release.py [--out dist]
"""

import argparse
import email
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parent.parent
# Building writes into its source folder, so that a copy is built instead of the checkout.
SOURCES = ("memrecall", "prompts", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
REQUIRED_METADATA = ("Name", "Version", "Summary", "Requires-Python", "License-Expression")
LARGEST = 5
# The bytes of each installed distribution, measured inside the environment.
SIZES = """
import json, os
from importlib.metadata import distributions
sizes = {}
for package in distributions():
    files = [package.locate_file(file) for file in package.files or ()]
    sizes[package.name] = sum(os.path.getsize(file) for file in files if os.path.exists(file))
print(json.dumps({name: size for name, size in sizes.items() if name not in ("pip", "setuptools")}))
"""
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
    section = "Unreleased" if ".dev" in version else version
    if not re.search(rf"^## {re.escape(section)}( |$)", changelog, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section {section}")
    return str(version)


def supported_versions() -> list[str]:
    """Return the Python versions that the metadata names."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of a version: this one, one on the PATH, of pyenv or of uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python")).expanduser()
    candidates = [
        getattr(sys, "_base_executable", sys.executable),
        shutil.which(f"python{version}"),
        *sorted(pyenv.glob(f"{version}.*/bin/python")),
        *sorted(uv.glob(f"cpython-{version}.*/bin/python3")),
    ]
    return next((Path(path) for path in candidates if path and is_version(path, version)), None)


def is_version(program: str | Path, version: str) -> bool:
    """Return True if a program runs and is this Python: pyenv's shims may refuse to."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    result = subprocess.run([program, "-c", code], capture_output=True, text=True)
    return result.stdout.strip() == version


def check_installation(interpreter: Path, wheel: Path, folder: Path, version: str) -> None:
    """Install the wheel into a clean environment, recall a message, and serve."""
    run(interpreter, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    memrecall = programs / "memrecall"
    core = install(programs, wheel, "")
    if run(memrecall, "--version", cwd=folder) != f"memrecall {version}\n":
        raise ReleaseError(f"the installed command is not memrecall {version}")
    (folder / "chat.jsonl").write_text(json.dumps(MESSAGE), "utf-8")
    run(memrecall, "import", "chat.jsonl", "--db", "chat.db", cwd=folder)
    if MESSAGE["content"] not in run(memrecall, *RECALL, cwd=folder):
        raise ReleaseError("the installed wheel does not recall a message that it has imported")
    server = install(programs, wheel, "[server]")
    check_service(memrecall, folder)
    largest = sorted(core, key=core.__getitem__, reverse=True)[:LARGEST]
    print(
        f"{run(programs / 'python', '--version', cwd=folder).strip()}: recalls and serves;"
        f" {megabytes(*core.values())}, with [server] {megabytes(*server.values())}; largest: "
        + ", ".join(f"{name} {megabytes(core[name])}" for name in largest)
    )


def install(programs: Path, wheel: Path, extra: str) -> dict[str, int]:
    """Install the wheel with an extra; return the bytes of each distribution but pip."""
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    requirement = f"memrecall-agent{extra} @ {wheel.as_uri()}"
    run(*pip, "install", "-c", ROOT / "constraints.txt", requirement, cwd=programs)
    sizes: dict[str, int] = json.loads(run(programs / "python", "-c", SIZES, cwd=programs))
    return sizes


def megabytes(*sizes: int) -> str:
    """Return the sum of sizes as text."""
    return f"{sum(sizes) / 1e6:.0f} MB"


def check_service(memrecall: Path, folder: Path) -> None:
    """Start the service, ask whether it is alive, and stop it."""
    command = [memrecall, "serve", "--port", "0", "--json", "--db", "chat.db"]
    log = folder / "service.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 -- it is a pipe
        line = process.stdout.readline()
        if not line:
            raise ReleaseError(f"the installed service does not start:\n{log.read_text('utf-8')}")
        with urlopen(f"{json.loads(line)['url']}/healthz", timeout=60) as answer:  # noqa: S310
            status = answer.status
        process.send_signal(signal.SIGINT)
    if (status, process.returncode) != (200, 0):
        raise ReleaseError(f"/healthz answers {status}, the exit code is {process.returncode}")


def each_interpreter() -> Iterator[Path]:
    """Yield an interpreter of each supported version; say which version has none."""
    for version in supported_versions():
        interpreter = find_interpreter(version)
        if interpreter is None:
            print(f"Python {version}: not found, so not tried")
        else:
            yield interpreter


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
        for interpreter in each_interpreter():
            with tempfile.TemporaryDirectory() as folder:
                check_installation(interpreter, wheel, Path(folder), version)
    for file in (sdist, wheel):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}")


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"release: {error}")
