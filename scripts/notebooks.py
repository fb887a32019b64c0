"""``python -m scripts.notebooks``: execute every notebook of ``notebooks/`` and store it with its outputs.

One after the other, in one kernel whose variables are cleared in between. Outputs are kept small and without anything
that changes from run to run; a hash of the cells says which text they belong to.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
PATIENCE = 300  # seconds for one cell
MARK = "outputs_of"  # in the notebook's metadata: the hash of the cells that its outputs were made with
WIDGET = "application/vnd.jupyter.widget-view+json"
DRAWN = ("image/png", "text/html", "text/plain")
CLEARED = "%reset -f\n%matplotlib inline"


def main() -> None:
    """Execute all notebooks where they lie; rows go to ``notebooks/results``."""
    with kernel(FOLDER) as manager:
        for file in files():
            nbformat.write(executed(file, manager), file)
            print(f"{file.name}: executed", flush=True)


def files() -> list[Path]:
    """Every notebook, in the order of its number."""
    return sorted(FOLDER.glob("*.ipynb"))


@contextmanager
def kernel(folder: Path) -> Iterator[KernelManager]:
    """A Python kernel that works in ``folder``; ended afterwards."""
    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(cwd=str(folder))
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def executed(file: Path, manager: KernelManager) -> Any:
    """The notebook with the outputs of its cells. Raises nbclient's CellExecutionError where one fails."""
    notebook = nbformat.read(file, as_version=4)
    cells = notebook.cells
    notebook.cells = [nbformat.v4.new_code_cell(CLEARED), *cells]
    NotebookClient(notebook, km=manager, timeout=PATIENCE, record_timing=False).execute()
    notebook.cells = notebook.cells[1:]
    for number, cell in enumerate((each for each in notebook.cells if each.cell_type == "code"), 1):
        cell.execution_count = number
        cell.outputs = [_stable_output(output, number) for output in cell.outputs if _says_something(output)]
    notebook.metadata.pop("widgets", None)  # states of progress bars, which are not shown
    notebook.metadata[MARK] = hash_of(notebook.cells)
    return notebook


def hash_of(cells: Sequence[Any]) -> str:
    """16 hex digits of all cells' texts."""
    return hashlib.sha256("\0".join(f"{cell.cell_type}\n{cell.source}" for cell in cells).encode()).hexdigest()[:16]


def _says_something(output: Any) -> bool:
    """Progress bars that have gone leave a widget without a model behind."""
    data = output.get("data", {})
    return WIDGET not in data and bool(output.get("text") or any(map(str.strip, data.values())))


def _stable_output(output: Any, number: int) -> Any:
    """Without numbers that depend on what ran before, and only in forms that people read."""
    if "execution_count" in output:
        output.execution_count = number
    if "data" in output:
        output.data = {form: output.data[form] for form in DRAWN if form in output.data}
        output.metadata = {}
    return output


if __name__ == "__main__":
    main()
