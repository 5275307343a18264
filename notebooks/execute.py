"""Execute notebooks in fresh kernels, and save them with what they show: `make notebooks`.

    python notebooks/execute.py [NAME.ipynb …]

A kernel is this very Python, whatever kernels are installed, and knows nobody's settings.
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
    """Starts kernels with the Python that runs this; `setup` is run in them before all else."""

    setup = Unicode("").tag(config=True)

    @property
    def kernel_spec(self) -> KernelSpec:
        """How a kernel is started."""
        begin = "from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
        argv = [sys.executable, "-c", f"{self.setup}\n{begin}", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def names() -> list[str]:
    """Return the names of the notebooks in this folder."""
    return sorted(path.name for path in HERE.glob("*.ipynb"))


def read(name: str) -> Any:
    """Read a saved notebook."""
    return nbformat.read(HERE / name, as_version=4)  # type: ignore[no-untyped-call]


def execute(notebook: Any, folder: Path = HERE, setup: str = "") -> Any:
    """Run a notebook's cells in a fresh kernel that works in `folder`; an error is raised."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as scratch:
        kernel = {"setup": setup, "transport": "ipc", "connection_file": f"{scratch}/kernel.json"}
        client = NotebookClient(
            notebook,
            kernel_manager_class=ThisPython,
            config=Config({"ThisPython": kernel}),
            timeout=TIMEOUT,
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env=_environment(scratch))
    notebook.metadata = _METADATA
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            _shorten(output.get("data", {}))
    return notebook


def _shorten(data: dict[str, str]) -> None:
    """Beside a table or a plot, the plain text is for those who see nothing else."""
    plain = data.get("text/plain", "")
    if len(data) > 1 and len(plain) > _LONGEST_PLAIN:
        data["text/plain"] = f"{plain[:_LONGEST_PLAIN]}…"


def _environment(scratch: str) -> dict[str, str]:
    """Return the environment of a kernel, without the settings and keys of its user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMRECALL_")}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"MEMRECALL_CONFIG": os.devnull, "IPYTHONDIR": scratch, "HOME": scratch}
    return {**kept, **own, "PYTHONPATH": os.pathsep.join(paths), "TZ": "UTC"}


def main(chosen: Sequence[str]) -> None:
    """Execute and save the notebooks that are named, or all."""
    for name in chosen or names():
        notebook = execute(read(name))
        nbformat.write(notebook, HERE / name)  # type: ignore[no-untyped-call]
        print(f"{name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells")


if __name__ == "__main__":
    main([Path(name).name for name in sys.argv[1:]])
