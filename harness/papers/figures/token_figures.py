"""What of a prompt is kept: by layer and position (K-VEC Figure 4), and on the text itself (K-VEC Figure 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from harness.papers.figures.canvas import (
    DARKER,
    MUTED,
    FigureSheet,
    Sketch,
    draw_colour_bar,
    draw_matrix,
    ink_on,
    tick_indices,
)
from harness.papers.figures.figure_data import FigureData, index_note, scaled_index
from harness.report.looks import HUES, look_of

LETTERS, LETTER, LINE = 74, 5.12, 13  # in one line; CSS pixels of a letter of the fixed-width font, and of a line
FIXED = 70  # letters of small text in one line, in a font of fixed width
LONGEST = 3600  # letters; of longer prompts the middle is left out
TITLES = {
    "kvec/no_heads": "cross-layer coverage alone (kvec/no_heads)",
    "kvec/no_layers": "cross-head coverage alone (kvec/no_layers)",
}


def draw_kept_maps(data: FigureData) -> Sketch:
    """A map a policy: in how many KV heads of a layer each prompt token is held after the prompt."""
    held = held_after_prompt(data.one_sample("kept"))
    policies = [name for name in data.policies if name in set(held["policy"])]
    tokens = _tokens(held)
    layers = int(held["layer"].max()) + 1
    heads = int(held["head"].max()) + 1
    scale = Normalize(0, heads)
    high = max(54.0, 7.0 * layers)
    sample = held["sample_id"].iloc[0]
    sheet = FigureSheet(
        len(policies) * (high + 36) + 56, f"One prompt ({sample}, {tokens} tokens) after eviction: no interval"
    )
    for i, policy in enumerate(policies):
        own = held[held["policy"] == policy]
        matrix = np.zeros((layers, tokens))
        np.add.at(matrix, (own["layer"].to_numpy(), own["position"].to_numpy()), 1)
        axes = sheet.panel(44, 20 + i * (high + 36), 344, high)
        draw_matrix(axes, np.where(matrix > 0, matrix, np.nan), scale, colours=DARKER)
        covered = float((matrix.sum(0) > 0).mean())
        axes.set_title(f"{TITLES.get(policy, policy)}: covers {covered:.0%}", loc="left", pad=4)
        shown = tick_indices(layers, 8)
        axes.set_yticks(shown, [str(layer) for layer in shown])
        axes.set_ylabel("layer", labelpad=2)
    below = len(policies) * (high + 36)
    sheet.text(216, below - 2, "position in the prompt (tokens)", ha="center")
    draw_colour_bar(
        sheet, 44, below + 30, 160, scale, "KV heads of the layer that hold the token (white: none)", DARKER
    )
    missing = [name for name in data.policies if name not in policies]
    notes = (f"Not diagnosed yet: {', '.join(missing)}.",) if missing else ()
    return Sketch(sheet.figure, f"Tokens held after the prompt, by layer, on one prompt of {tokens} tokens.", notes)


def draw_kept_text(data: FigureData, policy: str) -> Sketch:
    """The prompt's own words, each token as dark as the share of layers that hold it in some head."""
    frame = data.one_sample("kept")
    found = frame[frame["policy"] == policy]
    held = held_after_prompt(found)
    sample = held["sample_id"].iloc[0]
    words = data.one_sample("text")
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
    sheet = FigureSheet(lines * LINE + 52, footer, letters=FIXED)
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
    draw_colour_bar(sheet, 8, 14, 160, scale, "layers that hold the token (uncoloured: none)", DARKER)
    says = f"How many of {layers} layers hold each token of one prompt under {policy}; {never:.0%} are held by none."
    return Sketch(sheet.figure, says, fixed_width=True)


def held_after_prompt(kept: pd.DataFrame) -> pd.DataFrame:
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


# Windowed attention over the prompt in one head: K-VEC Figure 2.


TENTHS = 10


def draw_window_scores(data: FigureData, layer: int, head: int, policy: str) -> Sketch:
    """Above, what the last queries attend to; below, the same in tenths of the prompt, beside the mean of all heads."""
    frame = data.one_sample("window_attention")
    frame = frame[frame["policy"] == frame["policy"].iloc[0]]
    own = frame[(frame["layer"] == layer) & (frame["query_head"] == head)].sort_values("position")
    tokens, sample = len(own), own["sample_id"].iloc[0]
    look = look_of(policy)
    sheet = FigureSheet(330, f"One prompt ({sample}, {tokens} tokens), before eviction: no interval")
    axes = sheet.panel(56, 20, 332, 130)
    axes.plot(own["position"], own["attention"], color=look.light, linewidth=0.8)
    axes.set_xlim(0, tokens - 1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("attention (mean, 0 to 1)")
    axes.set_xlabel("position in the prompt (tokens)")
    axes.set_title(f"layer {layer}, query head {head}", loc="left", pad=4)
    below = sheet.panel(56, 216, 332, 74)
    tenth = np.minimum(frame["position"] * TENTHS // tokens, TENTHS - 1)
    shares = frame.assign(tenth=tenth).groupby(["layer", "query_head", "tenth"])["attention"].sum()
    chosen = shares.loc[(layer, head)]
    below.bar(chosen.index + 0.5, chosen, 0.86, color=look.light)
    everywhere = shares.groupby("tenth").mean()
    below.plot(everywhere.index + 0.5, everywhere, color=MUTED, marker="o", markersize=3, linewidth=1)
    below.set_title(
        "share of attention by tenth of the prompt (grey: mean of all heads)", loc="left", fontsize=9, pad=4
    )
    below.set_xticks(range(0, TENTHS + 1, 2), [f"{10 * i}%" for i in range(0, TENTHS + 1, 2)])
    below.set_ylabel("share")
    below.set_xlabel("place in the prompt (% of its tokens)")
    says = (
        f"Attention of the last 32 prompt tokens in layer {layer}, query head {head}; {float(chosen.iloc[-1]):.0%} of "
        "it goes to the last tenth of the prompt."
    )
    return Sketch(sheet.figure, says)


# Maps over the first tokens of a prompt: KeyDiff Figure 2 (key cosines and attention), HashEvict Figure 7 (attention
# above key norms).


LAYERS, HEADS = 32, 32  # of HashEvict's model, Llama-3-8B
ATTENTION = PowerNorm(0.4, 0, 1)  # most attention weights are small


def draw_cosines_and_attention(data: FigureData) -> Sketch:
    """Two heads: the one where alike keys get least attention, and the median one. The paper chose two by eye."""
    frame = data.one_sample("first_tokens")
    frame = frame[frame["policy"] == frame["policy"].iloc[0]]
    ranked = _correlations(frame)
    chosen = [ranked.index[0], ranked.index[len(ranked) // 2]]
    tokens = int(frame["key"].max()) + 1
    sample = frame["sample_id"].iloc[0]
    footer = (
        f"One prompt ({sample}), its first {tokens} tokens, no eviction: no interval. r: correlation of a key's mean "
    )
    footer += f"cosine and its attention; left the lowest of {len(ranked)} heads, right the median one"
    sheet = FigureSheet(450, footer)
    side = 160.0
    for column, (layer, head) in enumerate(chosen):
        own = frame[(frame["layer"] == layer) & (frame["query_head"] == head)]
        left = 40 + column * 190
        cosine = sheet.panel(left, 22, side, side)
        draw_matrix(cosine, _matrix(own, "cosine"), Normalize(-1, 1))
        cosine.set_title(f"layer {layer}, head {head} (r = {ranked[(layer, head)]:.2f})", loc="left", fontsize=9, pad=4)
        attention = sheet.panel(left, 212, side, side)
        draw_matrix(attention, _matrix(own, "attention").where(_earlier(own)), ATTENTION)
        for axes, name in ((cosine, "key"), (attention, "query")):
            _ticks(axes, tokens)
            if column == 0:
                axes.set_ylabel(f"{name} (position)", labelpad=1)
        attention.set_xlabel("key (position)", labelpad=1)
    draw_colour_bar(sheet, 40, 420, 160, Normalize(-1, 1), "cosine of two keys (above)")
    draw_colour_bar(sheet, 230, 420, 160, ATTENTION, "attention weight (below)")
    return Sketch(
        sheet.figure, f"Cosines between keys (above) and attention (below), first {tokens} tokens of one prompt."
    )


def draw_attention_and_norms(data: FigureData, layer: int, heads: tuple[int, ...]) -> Sketch:
    """The attention of the first tokens above the norms of their keys, without the first token's."""
    frame, points = data.one_sample("first_tokens"), data.one_sample("key_points")
    count = int(frame["query_head"].max()) + 1
    group = count // (int(points["head"].max()) + 1)
    own_layer = scaled_index(layer, LAYERS, int(frame["layer"].max()) + 1)
    own_heads = list(dict.fromkeys(scaled_index(head, HEADS, count) for head in heads))
    notes = (*index_note((layer,), (own_layer,), "layer"), *index_note(heads, own_heads, "query head"))
    tokens = int(frame["key"].max()) + 1
    footer = (
        f"One prompt ({frame['sample_id'].iloc[0]}), its first {tokens} tokens, no eviction: no interval. Norms leave "
    )
    footer += "out the first token, as in the paper"
    side = 94.0
    sheet = FigureSheet(2 * (side + 84) + 22, footer)
    for i, head in enumerate(own_heads):
        left, top = 40 + (i % 3) * (side + 32), 18 + (i // 3) * (side + 84)
        own = frame[(frame["layer"] == own_layer) & (frame["query_head"] == head)]
        attention = sheet.panel(left, top, side, side)
        draw_matrix(attention, _matrix(own, "attention").where(_earlier(own)), ATTENTION)
        attention.set_title(f"head {head}", loc="left", fontsize=9, pad=3)
        _ticks(attention, tokens)
        attention.set_xticklabels([])
        norms = points[
            (points["layer"] == own_layer) & (points["head"] == head // group) & (points["position"] < tokens)
        ]
        norms = norms[norms["position"] > 0]
        below = sheet.panel(left, top + side + 6, side, 42)
        below.plot(norms["position"], norms["norm"], color=HUES["blue"][0], linewidth=1)
        below.set_xlim(-0.5, tokens - 0.5)
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        below.tick_params(labelsize=8, pad=2)
        if i % 3 == 0:
            attention.set_ylabel("query", labelpad=1)
            below.set_ylabel("norm", labelpad=1)
        if i >= len(own_heads) - 3:
            below.set_xlabel("key (position)", labelpad=1)
    draw_colour_bar(sheet, 292, 18 + side + 84 + 30, side, ATTENTION, "attention weight")
    says = f"Attention (above) and key norms (below) in layer {own_layer}, first {tokens} tokens of one prompt."
    return Sketch(sheet.figure, says, notes)


def _correlations(frame: pd.DataFrame) -> pd.Series:
    """By layer and query head: does a key that is like the others get attention? Lowest correlation first."""
    found: dict[Any, float] = {}
    for i, own in frame.groupby(["layer", "query_head"]):
        cosine, attention = _matrix(own, "cosine").to_numpy(), _matrix(own, "attention").to_numpy()
        size = len(cosine)
        alike = (cosine.sum(0) - 1) / (size - 1)
        later = np.tril(np.ones_like(attention), -1).sum(0)
        received = np.tril(attention, -1).sum(0)[:-1] / later[:-1]
        found[i] = float(np.corrcoef(alike[:-1], received)[0, 1])
    return pd.Series(found).sort_values(kind="stable")


def _matrix(own: pd.DataFrame, column: str) -> pd.DataFrame:
    return own.pivot(index="query", columns="key", values=column)


def _earlier(own: pd.DataFrame) -> np.ndarray:
    size = int(own["key"].max()) + 1
    return np.tril(np.ones((size, size), dtype=bool))


def _ticks(axes: Axes, tokens: int) -> None:
    positions = list(range(0, tokens, 16))
    axes.set_xticks(positions, [str(i) for i in positions])
    axes.set_yticks(positions, [str(i) for i in positions])
