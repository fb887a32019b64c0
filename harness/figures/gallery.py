"""The entry point: one figure of one paper from rows and a store, or the reason why there is none."""

from __future__ import annotations

import pandas as pd

from harness.errors import UserError
from harness.figures.canvas import canvas, rendered
from harness.figures.catalogue import FIGURES
from harness.figures.drawing import Drawing, GapError, Place
from harness.figures.material import Material, gathered
from harness.figures.points import experiment
from harness.published import items
from harness.report.names import ordered_budgets
from harness.store import Store
from policies import nearest

TITLES = {"keydiff": "KeyDiff", "caote": "CAOTE", "buzz": "BUZZ", "hashevict": "HashEvict", "kvec": "K-VEC"}
DRAWING = "drawing"  # what items.csv calls a figure that shows no measurement


def drawn(paper: str, item: str, rows: pd.DataFrame, store: Store) -> Drawing | None:
    """The figure, or None where it cannot be drawn; `place` says why.

    ``item``: as in `harness.published.items` (``Figure 8a``). ``rows``: of `harness.store.load_rows`. ``store``: the
    store they are from; diagnostics lie beside it. Raises `UserError` for an unknown paper or figure.
    """
    return place(paper, item, rows, store).drawing


def place(paper: str, item: str, rows: pd.DataFrame, store: Store) -> Place:
    """The figure, or the reason why there is none. Raises `UserError` for an unknown paper or figure."""
    listed = items(paper).set_index("item")
    if item not in listed.index:
        figures = [name for name in listed.index if name.startswith("Figure")]
        raise UserError(f"There is no '{item}' in the figures of {TITLES[paper]}. {nearest(item, figures)}")
    entry = listed.loc[item]
    if entry["needs"] == DRAWING:
        return Place(None, f"An illustration ({entry['shows']}): nothing in it is measured.")
    if (paper, item) not in FIGURES:
        return Place(None, "Not a figure: its numbers stand in a table.")
    plan = FIGURES[paper, item]
    try:
        material = gathered(paper, plan.rows_of or item, rows, store)
        with canvas():
            sketch = plan.draw(material)
            caption = f"{TITLES[paper]} {item}: {entry['shows']}. {_setting(material)} {sketch.says}"
            name = f"{paper}-{experiment(item)}"
            svg, png = rendered(sketch.figure, name, caption, sketch.fixed_width)
    except GapError as gap:
        return Place(None, str(gap))
    return Place(Drawing(svg, png, caption, sketch.notes))


def _setting(material: Material) -> str:
    """Whose numbers these are."""
    cells = material.rows if not material.rows.empty else material.diagnosed
    tasks, budgets = ", ".join(dict.fromkeys(cells["task"])), ", ".join(ordered_budgets(cells["budget"]))
    model = f"{material.model} (scale=mini, not the paper's model)" if material.mini else material.model
    return f"Ours: {model}, {tasks}, budget {budgets}."
