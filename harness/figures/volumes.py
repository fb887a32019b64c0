"""How the volume that kept keys span is distributed over prompts, layers and heads: KeyDiff Figure 5."""

from __future__ import annotations

import numpy as np
from matplotlib.lines import Line2D

from harness.figures.canvas import Sheet, legend_height
from harness.figures.drawing import GapError, Sketch
from harness.figures.estimates import count, over_samples
from harness.figures.material import Material
from harness.report.colours import look_of

BINS = 24


def draw(material: Material) -> Sketch:
    """A histogram a policy, as a share of all heads, layers and prompts, with its mean and interval in the key."""
    found = material.internals("log_det")
    finite = found[np.isfinite(found["log_det"])]
    if finite.empty:
        raise GapError("No stored head keeps keys that span a volume.")
    lost = len(found) - len(finite)
    notes: tuple[str, ...] = (
        (f"{lost} of {len(found)} heads span no volume (log det = -inf) and are left out.",) if lost else ()
    )
    means = over_samples(finite, ["policy"], "log_det").set_index("policy")
    policies = [name for name in material.policies if name in means.index]
    handles = []
    for name in policies:
        mean, look = means.loc[name], look_of(name)
        label = f"{name}: mean {mean['value']:.1f} [{mean['low']:.1f}, {mean['high']:.1f}]"
        handles.append(Line2D([], [], color=look.light, linewidth=2, label=label))
    top = legend_height(len(handles), 1) + 6
    n = count(means["n"])
    kept = sorted(found["keys"].unique())
    sheet = Sheet(top + 222, f"{n} prompts, all layers and KV heads; [ ]: 95 % intervals of the mean over prompts")
    sheet.legend(4, handles, 1)
    axes = sheet.panel(52, top + 8, 336, 170)
    edges = np.linspace(finite["log_det"].min(), finite["log_det"].max(), BINS + 1)
    for name in policies:
        own = finite[finite["policy"] == name]["log_det"]
        share = np.histogram(own, edges)[0] / len(own)
        axes.stairs(share, edges, color=look_of(name).light, linewidth=1.6)
        axes.stairs(share, edges, color=look_of(name).light, fill=True, alpha=0.14)
        axes.axvline(float(means["value"][name]), color=look_of(name).light, linewidth=1, linestyle=":")
    axes.set_xlabel("log det of the kept keys' Gram matrix (nats)")
    axes.set_ylabel("share of heads and prompts")
    if len(kept) > 1:
        notes += ("Prompts of several lengths leave several numbers of keys, and a volume grows with them.",)
    sizes = f"{kept[0]}" if len(kept) == 1 else f"{kept[0]} to {kept[-1]}"
    return Sketch(sheet.figure, f"Volume spanned by {sizes} kept keys per head ({n} prompts).", notes)
