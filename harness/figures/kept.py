"""What of a prompt is kept: by layer and position (K-VEC Figure 4), and on the text itself (K-VEC Figure 3)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from harness.figures.canvas import MUTED, Sheet
from harness.figures.drawing import Sketch
from harness.figures.maps import DARKER, bar, grid, ink_on, spaced
from harness.figures.material import Material

LETTERS, LETTER, LINE = 74, 5.12, 13  # in one line; CSS pixels of a letter of the fixed-width font, and of a line
FIXED = 70  # letters of small text in one line, in a font of fixed width
LONGEST = 3600  # letters; of longer prompts the middle is left out
TITLES = {
    "kvec/no_heads": "cross-layer coverage alone (kvec/no_heads)",
    "kvec/no_layers": "cross-head coverage alone (kvec/no_layers)",
}


def maps(material: Material) -> Sketch:
    """A map a policy: in how many KV heads of a layer each prompt token is held after the prompt."""
    held = after_prompt(material.one_sample("kept"))
    policies = [name for name in material.policies if name in set(held["policy"])]
    tokens = _tokens(held)
    layers = int(held["layer"].max()) + 1
    heads = int(held["head"].max()) + 1
    scale = Normalize(0, heads)
    high = max(54.0, 7.0 * layers)
    sample = held["sample_id"].iloc[0]
    sheet = Sheet(
        len(policies) * (high + 36) + 56, f"One prompt ({sample}, {tokens} tokens) after eviction: no interval"
    )
    for place, policy in enumerate(policies):
        own = held[held["policy"] == policy]
        matrix = np.zeros((layers, tokens))
        np.add.at(matrix, (own["layer"].to_numpy(), own["position"].to_numpy()), 1)
        axes = sheet.panel(44, 20 + place * (high + 36), 344, high)
        grid(axes, np.where(matrix > 0, matrix, np.nan), scale, colours=DARKER)
        covered = float((matrix.sum(0) > 0).mean())
        axes.set_title(f"{TITLES.get(policy, policy)}: covers {covered:.0%}", loc="left", pad=4)
        shown = spaced(layers, 8)
        axes.set_yticks(shown, [str(layer) for layer in shown])
        axes.set_ylabel("layer", labelpad=2)
    below = len(policies) * (high + 36)
    sheet.text(216, below - 2, "position in the prompt (tokens)", ha="center")
    bar(sheet, 44, below + 30, 160, scale, "KV heads of the layer that hold the token (white: none)", DARKER)
    missing = [name for name in material.policies if name not in policies]
    notes = (f"Not diagnosed yet: {', '.join(missing)}.",) if missing else ()
    return Sketch(sheet.figure, f"Tokens held after the prompt, by layer, on one prompt of {tokens} tokens.", notes)


def text(material: Material, policy: str) -> Sketch:
    """The prompt's own words, each token as dark as the share of layers that hold it in some head."""
    frame = material.one_sample("kept")
    found = frame[frame["policy"] == policy]
    held = after_prompt(found)
    sample = held["sample_id"].iloc[0]
    words = material.one_sample("text")
    words = words[(words["policy"] == policy) & (words["sample_id"] == sample)].sort_values("position")
    layers = int(held["layer"].max()) + 1
    by_token = held.groupby("position")["layer"].nunique().reindex(words["position"], fill_value=0).to_numpy()
    pieces, cut = _shortened(list(zip(words["text"], by_token, strict=True)))
    placed, lines = _flowed(pieces)
    never = float((by_token == 0).mean())
    footer = f"One prompt ({sample}, {len(words)} tokens) after eviction by {policy}: no interval. "
    footer += f"{never:.0%} of the tokens are held by no layer" + (
        f"; the middle {cut} tokens are left out here" if cut else ""
    )
    sheet = Sheet(lines * LINE + 52, footer, letters=FIXED)
    axes = sheet.panel(8, 40, sheet.width - 16, lines * LINE)
    axes.set_axis_off()
    axes.set(xlim=(0, sheet.width - 16), ylim=(lines * LINE, 0))
    scale = Normalize(0, layers)
    for column, line, piece, count in placed:
        x, y = column * LETTER, line * LINE
        if count:
            colour = DARKER(scale(count))
            axes.add_patch(Rectangle((x, y + 1), len(piece) * LETTER, LINE - 1.5, facecolor=colour, linewidth=0))
        shown = ink_on(count, scale, DARKER) if count else MUTED
        # Blanks in front are left out and counted: SVG would swallow them and set the word too far left.
        word = piece.strip()
        x += LETTER * (len(piece) - len(piece.lstrip()))
        axes.text(x, y + LINE / 2, word, va="center", fontsize=8.5, color=shown, family="monospace")
    bar(sheet, 8, 14, 160, scale, "layers that hold the token (uncoloured: none)", DARKER)
    says = f"How many of {layers} layers hold each token of one prompt under {policy}; {never:.0%} are held by none."
    return Sketch(sheet.figure, says, fixed_width=True)


def after_prompt(kept: pd.DataFrame) -> pd.DataFrame:
    """What is held after the last pass of the prompt, of each policy."""
    prompt = kept[kept["phase"] == "prompt"]
    last = prompt.groupby("policy")["step"].transform("max")
    own = prompt[prompt["step"] == last]
    return own[own["position"] < own["fed"]]


def _tokens(held: pd.DataFrame) -> int:
    return int(held["fed"].max())


def _shortened(pieces: list[tuple[str, int]]) -> tuple[list[tuple[str, int]], int]:
    """The beginning and the end of what is too long, and how many tokens are left out between them."""
    total, keep = sum(len(word) for word, _ in pieces), len(pieces)
    if total <= LONGEST:
        return pieces, 0
    half = max(1, int(keep * LONGEST / total / 2))
    return [*pieces[:half], (" […] ", 0), *pieces[-half:]], keep - 2 * half


def _flowed(pieces: list[tuple[str, int]]) -> tuple[list[tuple[int, int, str, int]], int]:
    """Column, line, text and number of each piece in lines of `LETTERS` letters; the text's own line breaks stay."""
    out: list[tuple[int, int, str, int]] = []
    column = line = 0
    for word, number in pieces:
        for nth, part in enumerate(word.split("\n")):
            if nth:
                column, line = 0, line + (column > 0 or nth > 1)
            shown = "".join(letter if letter.isprintable() else "·" for letter in part)
            if column and column + len(shown) > LETTERS:
                column, line = 0, line + 1
            if shown:
                out.append((column, line, shown[:LETTERS], number))
                column += len(shown)
    return out, line + 1
