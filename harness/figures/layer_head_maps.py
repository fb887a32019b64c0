"""A number for each layer and head, two maps: HashEvict Figure 8."""

from __future__ import annotations

from matplotlib.colors import Normalize

from harness.figures.canvas import Sheet
from harness.figures.drawing import Sketch
from harness.figures.estimates import count, over_samples, spread
from harness.figures.maps import bar, grid, spaced
from harness.figures.material import Material

TITLES = {"lsh": "(a) LSH ranking", "l2": "(b) L2 norm ranking"}
SIDE = 158.0  # CSS pixels


def draw(material: Material) -> Sketch:
    """Both maps on one scale, so that they can be compared; the paper's is Eq. 7."""
    frame = material.internals("ranking_loss")
    found = over_samples(frame, ["ranking", "layer", "query_head"], "difference")
    n = count(found["n"])
    largest = float(found["value"].max())
    scale = Normalize(0, largest)
    footer = f"{n} prompts, a cell is their mean; {spread(found)}. 0: drops keys in the order of attention"
    sheet = Sheet(SIDE + 96, footer)
    for place, (ranking, title) in enumerate(TITLES.items()):
        own = found[found["ranking"] == ranking].pivot(index="query_head", columns="layer", values="value")
        axes = sheet.panel(40 + place * (SIDE + 34), 22, SIDE, SIDE)
        room = SIDE / len(own.columns) >= 24 and SIDE / len(own) >= 12
        texts = [[f"{number:.0f}" if largest >= 10 else f"{number:.1f}" for number in line] for line in own.to_numpy()]
        grid(axes, own, scale, texts if room else None, size=8)
        axes.set_title(title, loc="left", pad=4)
        axes.set_xlabel("layer", labelpad=1)
        places = (spaced(len(own.columns), 8), spaced(len(own), 8))
        axes.set_xticks(places[0], [str(own.columns[i]) for i in places[0]])
        axes.set_yticks(places[1], [str(own.index[i]) for i in places[1]])
        if place == 0:
            axes.set_ylabel("query head", labelpad=1)
    bar(sheet, 40, SIDE + 74, 200, scale, "cumulative attention loss (sum over dropped keys)")
    return Sketch(sheet.figure, f"What attention it costs to drop keys in the order of a ranking ({n} prompts).")
