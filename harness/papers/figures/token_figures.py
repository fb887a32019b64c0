"""What of a prompt is kept: by layer and position (K-VEC Figure 4), and on the text itself (K-VEC Figure 3)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from harness.papers.figures.canvas import MUTED, SMALL, FigureSheet, Sketch
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import first_prompts, sample_means
from harness.papers.figures.matrix_panels import BAR, DARKER, draw_colour_bar, draw_matrix, ink_on, tick_indices
from harness.papers.figures.panel_grid import PanelGrid

TITLES = {
    "kvec/no_heads": "across layers alone (kvec/no_heads)",
    "kvec/no_layers": "across heads alone (kvec/no_layers)",
}
HEADING = 22  # CSS pixels of the line above a prompt's panels


def draw_kept_maps(data: FigureData, width: float) -> Sketch:
    """A map a prompt and policy: in how many KV heads of a layer each prompt token is held after the prompt."""
    held = held_after_prompt(data.first_samples("kept"))
    policies = [name for name in data.policies if name in set(held["policy"])]
    samples = list(dict.fromkeys(held["sample_id"]))
    layers, heads = int(held["layer"].max()) + 1, int(held["head"].max()) + 1
    scale = Normalize(0, heads)
    grid = PanelGrid.fit(width, len(policies), 200, max(60.0, 9.0 * layers), left=42, below=24)
    covered = _coverage(held)
    means = sample_means(covered, ["policy"], "covered").set_index("policy")
    footer = (
        f"Rule: {first_prompts(samples)}, all layers. Across the position in the prompt (tokens); beside a policy's "
        "name the share of tokens that some head of some layer holds, and in the caption its mean over these prompts "
        "with its 95 % interval"
    )
    sheet = FigureSheet(width, len(samples) * (HEADING + grid.total) + BAR + 6, footer)
    for number, sample in enumerate(samples):
        top = number * (HEADING + grid.total)
        own = held[held["sample_id"] == sample]
        tokens = _tokens(own)
        sheet.text(6, top + 4, f"prompt {sample}, {tokens} tokens", weight="bold")
        for i, policy in enumerate(policies):
            part = own[own["policy"] == policy]
            matrix = np.zeros((layers, tokens))
            np.add.at(matrix, (part["layer"].to_numpy(), part["position"].to_numpy()), 1)
            axes = grid.panel(sheet, i, top + HEADING)
            draw_matrix(axes, np.where(matrix > 0, matrix, np.nan), scale, colours=DARKER)
            share = covered.loc[(covered["policy"] == policy) & (covered["sample_id"] == sample), "covered"].iloc[0]
            axes.set_title(f"{TITLES.get(policy, policy)}: {share:.0%}", loc="left", fontsize=SMALL, pad=4)
            shown = tick_indices(layers, 4)
            axes.set_yticks(shown, [str(layer) for layer in shown])
            axes.set_ylabel("layer", labelpad=2)
    low = len(samples) * (HEADING + grid.total)
    draw_colour_bar(
        sheet, 42, low, min(260.0, width - 60), scale, "KV heads that hold the token (white: none)", DARKER, heads
    )
    missing = [name for name in data.policies if name not in policies]
    notes = (f"Not diagnosed yet: {', '.join(missing)}.",) if missing else ()
    words = ", ".join(f"{name} {_with_interval(means, name)}" for name in policies)
    return Sketch(sheet.figure, f"Tokens held after the prompt, by layer; covered on average: {words}.", notes)


def _coverage(held: pd.DataFrame) -> pd.DataFrame:
    """``covered``: the share of a prompt's tokens that some head of some layer holds, by policy and sample."""
    found = held.groupby(["policy", "sample_id"]).agg(positions=("position", "nunique"), fed=("fed", "max"))
    return found.assign(covered=found["positions"] / found["fed"]).reset_index()


def _with_interval(means: pd.DataFrame, name: str) -> str:
    mean = means.loc[[name]].iloc[0]
    if not np.isfinite(mean["low"]):
        return f"{mean['value']:.0%}"
    return f"{mean['value']:.0%} [{mean['low']:.0%}, {mean['high']:.0%}]"


LETTER, LINE = 6.65, 16  # CSS pixels of a letter of the fixed-width font, and of a line
LONGEST = 3000  # letters of a prompt on a wide canvas; the middle of longer ones is left out
LONGEST_NARROW = 900


def draw_kept_text(data: FigureData, width: float, policy: str) -> Sketch:
    """The prompts' own words, each token as dark as the share of layers that hold it in some head."""
    frame = data.first_samples("kept")
    held = held_after_prompt(frame[frame["policy"] == policy])
    text = data.internals("text")
    text = text[text["policy"] == policy]
    samples = list(dict.fromkeys(held["sample_id"]))
    layers = int(held["layer"].max()) + 1
    letters = int((width - 12) / LETTER)
    longest = LONGEST if letters > 100 else LONGEST_NARROW
    blocks = []
    for sample in samples:
        words = text[text["sample_id"] == sample].sort_values("position")
        own = held[held["sample_id"] == sample]
        counts = own.groupby("position")["layer"].nunique().reindex(words["position"], fill_value=0).to_numpy()
        pieces = _shortened(list(zip(words["text"], counts, strict=True)), longest)
        blocks.append((sample, counts, *_flowed(pieces, letters)))
    scale = Normalize(0, layers)
    height = BAR + sum(HEADING + lines * LINE + 8 for *_, lines in blocks)
    footer = f"Rule: {first_prompts(samples)}, after eviction by {policy}; counts, no interval"
    sheet = FigureSheet(width, height, footer, letter=LETTER)
    draw_colour_bar(
        sheet, 6, 0, min(260.0, width - 20), scale, "layers that hold the token (uncoloured: none)", DARKER, layers
    )
    top = float(BAR)
    for sample, counts, placed, lines in blocks:
        words = f"{sample}: {np.mean(counts == 0):.0%} of {len(counts)} tokens in no layer"
        sheet.text(6, top + 4, words, weight="bold", fontsize=SMALL)
        axes = sheet.panel(6, top + HEADING, width - 12, lines * LINE)
        axes.set_axis_off()
        axes.set(xlim=(0, width - 12), ylim=(lines * LINE, 0))
        _write(axes, placed, scale)
        top += HEADING + lines * LINE + 8
    never = float(np.mean([np.mean(counts == 0) for _, counts, *_ in blocks]))
    says = f"How many of {layers} layers hold each token under {policy}; on average {never:.0%} are held by none."
    return Sketch(sheet.figure, says, fixed_width=True)


def _write(axes: Axes, placed: list[tuple[int, int, str, int]], scale: Normalize) -> None:
    for column, line, piece, count in placed:
        x, y = column * LETTER, line * LINE
        if count:
            colour = DARKER(scale(count))
            axes.add_patch(Rectangle((x, y + 1), len(piece) * LETTER, LINE - 1.5, facecolor=colour, linewidth=0))
        shown = ink_on(count, scale, DARKER) if count else MUTED
        # Blanks in front are left out and counted: SVG would swallow them and set the word too far left.
        word = piece.strip()
        x += LETTER * (len(piece) - len(piece.lstrip()))
        axes.text(x, y + LINE / 2, word, va="center", fontsize=SMALL, color=shown, family="monospace")


def held_after_prompt(kept: pd.DataFrame) -> pd.DataFrame:
    """What is held after the last pass of the prompt, of each policy and sample."""
    prompt = kept[kept["phase"] == "prompt"]
    last = prompt.groupby(["policy", "sample_id"])["step"].transform("max")
    own = prompt[prompt["step"] == last]
    return own[own["position"] < own["fed"]]


def _tokens(held: pd.DataFrame) -> int:
    return int(held["fed"].max())


def _shortened(pieces: list[tuple[str, int]], longest: int) -> list[tuple[str, int]]:
    """The beginning and the end of what is too long, and between them how many tokens are left out."""
    total, keep = sum(len(word) for word, _ in pieces), len(pieces)
    if total <= longest:
        return pieces
    half = max(1, int(keep * longest / total / 2))
    return [*pieces[:half], (f" [{keep - 2 * half} tokens left out] ", 0), *pieces[-half:]]


def _flowed(pieces: list[tuple[str, int]], letters: int) -> tuple[list[tuple[int, int, str, int]], int]:
    """Column, line, text and number of each piece in lines of so many letters; the text's own line breaks stay."""
    out: list[tuple[int, int, str, int]] = []
    column = line = 0
    for word, number in pieces:
        for nth, part in enumerate(word.split("\n")):
            if nth:
                column, line = 0, line + (column > 0 or nth > 1)
            shown = "".join(letter if letter.isprintable() else "·" for letter in part)
            if column and column + len(shown) > letters:
                column, line = 0, line + 1
            if shown:
                out.append((column, line, shown[:letters], number))
                column += len(shown)
    return out, line + 1
