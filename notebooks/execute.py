"""Execute notebooks in fresh kernels and save their outputs: `make notebooks`.

    python notebooks/execute.py [NAME.ipynb …]

Kernels use this Python, whatever kernels are installed, and ignore the user's settings.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from traitlets import Unicode
from traitlets.config import Config

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_LONGEST_PLAIN = 200
TIMEOUT = 120  # seconds for one cell
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class ThisPython(AsyncKernelManager):
    """A kernel manager that uses this Python and runs `setup` first in every kernel."""

    setup = Unicode("").tag(config=True)

    @property
    def kernel_spec(self) -> KernelSpec:
        """The command that starts a kernel."""
        begin = "from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
        argv = [sys.executable, "-c", f"{self.setup}\n{begin}", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def names() -> list[str]:
    """Return the file names of the notebooks."""
    return sorted(path.name for path in HERE.glob("*.ipynb"))


def read(name: str) -> Any:
    """Read a notebook."""
    return nbformat.read(HERE / name, as_version=4)  # type: ignore[no-untyped-call]


def execute(notebook: Any, folder: Path = HERE, setup: str = "") -> Any:
    """Run a notebook's cells in a fresh kernel that works in `folder`; raise its errors."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as scratch:
        kernel = {"setup": setup, "transport": "ipc", "connection_file": f"{scratch}/kernel.json"}
        client = NotebookClient(
            notebook,
            kernel_manager_class=ThisPython,
            config=Config({"ThisPython": kernel}),
            timeout=TIMEOUT,
            record_timing=False,
            coalesce_streams=True,  # a slow machine prints one output in several pieces
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env=_environment(scratch))
    notebook.metadata = _METADATA
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            _shorten(output.get("data", {}))
    return notebook


def _shorten(data: dict[str, str]) -> None:
    """Truncate plain text that only duplicates a table or a plot."""
    plain = data.get("text/plain", "")
    if len(data) > 1 and len(plain) > _LONGEST_PLAIN:
        data["text/plain"] = f"{plain[:_LONGEST_PLAIN]}…"


def _environment(scratch: str) -> dict[str, str]:
    """Return a kernel's environment, without the settings, profiles and keys of the user."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("MEMRECALL_")
    }
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"MEMRECALL_CONFIG": os.devnull, "IPYTHONDIR": scratch, "HOME": scratch}
    return {**inherited, **own, "PYTHONPATH": os.pathsep.join(paths), "TZ": "UTC"}


def main(chosen: Sequence[str]) -> None:
    """Execute and save the named notebooks, or all."""
    for name in chosen or names():
        notebook = execute(read(name))
        nbformat.write(notebook, HERE / name)  # type: ignore[no-untyped-call]
        print(f"{name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells")


if __name__ == "__main__":
    main([Path(name).name for name in sys.argv[1:]])
