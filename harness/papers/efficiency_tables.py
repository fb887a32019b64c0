"""The papers' efficiency tables on our machine, from stored rows, with dense in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from harness.papers import flop_formulas
from harness.papers.efficiency_rows import (
    KIBI,
    block_cost,
    by_round,
    largest,
    nearest_costs,
    regimes_text,
    rounds_of,
    rows_of_policy,
    run_conditions,
    speed_line,
    value_of,
)
from harness.papers.flop_formulas import measured_widths
from harness.papers.measured_tables import MeasuredTable, Ranged, Value
from harness.report.labels import ordered_policies

FAIR = "Dense keeps everything; a policy is as good as the quality it keeps (see the score tables)."


def throughput_table(paper: str, results: Path, scale: str = "") -> MeasuredTable:
    """Prefill and decode tokens per second and cache memory of a paper's methods and of dense."""
    rows = nearest_costs(results, scale, f"{paper}/throughput")
    dense = rows_of_policy(rows, "dense")
    lines = [speed_line(name, rows_of_policy(rows, name), dense) for name in ordered_policies(rows["policy"])]
    first = rows.iloc[0]
    new, budget = int(rows["new_tokens"].max()), int(first["budget_slots"])
    return MeasuredTable(
        name=f"{paper}-throughput",
        title="Speed and cache memory of the paper's methods",
        caption=f"A prompt of {first['prompt_tokens']:,} tokens in the paper's prompt regime ({regimes_text(rows)}), a "
        f"budget of {budget:,} slots, {new} new tokens. {FAIR}",
        conditions=run_conditions(rows),
        columns=(
            "policy", "prompt tokens/s", "× dense", "new tokens/s", "× dense", "cache, KiB", "state, KiB",
            "memory, × dense",
        ),
        lines=tuple(lines),
    )  # fmt: skip


def hashevict_table_1(results: Path, scale: str = "") -> MeasuredTable:
    """Decode and prefill tokens per second by budget; FastGen by what it recovers of attention."""
    rows = nearest_costs(results, scale, "hashevict/table_1")
    dense = rows_of_policy(rows, "dense")
    lines: list[tuple[Value, ...]] = []
    for share in dict.fromkeys(rows["budget"]):
        part = rows[rows["budget"] == share]
        for name in ordered_policies(part["policy"]):
            speeds = speed_line(name, rows_of_policy(part, name), dense)
            lines.append((name, share or "its own", speeds[3], speeds[1], *speeds[5:]))
    return MeasuredTable(
        name="hashevict-table-1-speeds",
        title="Table 1, the columns of speed",
        caption=f"A prompt of {rows['prompt_tokens'].iloc[0]:,} tokens, {rows['new_tokens'].max()} new ones. "
        "HashEvict reads its prompt token by token by its text, which we compute in one pass with the same "
        "survivors; the others read it at once. FastGen takes no budget: the setting is the share of attention that "
        "each head must recover.",
        conditions=run_conditions(rows),
        columns=("policy", "budget", "new tokens/s", "prompt tokens/s", "cache, KiB", "state, KiB", "memory, × dense"),
        lines=tuple(lines),
    )


def kvec_table_8(results: Path, scale: str = "") -> MeasuredTable:
    """Memory, prefill, decode and total speed of SnapKV and K-VEC."""
    rows = nearest_costs(results, scale, "kvec/table_9")
    tokens = largest(rows, "prompt_tokens")
    rows = rows[rows["prompt_tokens"] == tokens]
    longest = int(rows["new_tokens"].max())
    lines: list[tuple[Value, ...]] = []
    for name in ordered_policies(rows["policy"]):
        part = rows_of_policy(rows, name)
        prefill, decode = rounds_of(part, "prefill_seconds"), rounds_of(part, "decode_seconds", longest)
        memory = (value_of(part, "kv_bytes") + value_of(part, "state_bytes")) / KIBI
        speeds = (Ranged.of(each) for each in (tokens / prefill, longest / decode, longest / (prefill + decode)))
        lines.append((name, memory, *speeds))
    return MeasuredTable(
        name="kvec-table-8",
        title="Table 8",
        caption=f"A prompt of {tokens:,} tokens, {longest} new ones, {rows['budget_slots'].iloc[0]} slots for the "
        "prompt; the paper names none of the three. Total counts new tokens over the time of prompt and generation, "
        "which is how the printed totals come about. Generated tokens stay beside the budget.",
        conditions=run_conditions(rows),
        columns=("policy", "cache, KiB", "prompt tokens/s", "new tokens/s", "total, new tokens/s"),
        lines=tuple(lines),
    )


def kvec_table_9(results: Path, scale: str = "") -> MeasuredTable:
    """Seconds over input and output length, SnapKV / K-VEC / dense."""
    rows = nearest_costs(results, scale, "kvec/table_9")
    names = [name for name in ordered_policies(rows["policy"]) if name != "dense"] + ["dense"]
    outputs = sorted(set(rows["new_tokens"]) - {0})
    lines: list[tuple[Value, ...]] = []
    for tokens in sorted(set(rows["prompt_tokens"])):
        for name in names:
            part = rows_of_policy(rows[rows["prompt_tokens"] == tokens], name)
            prefill = rounds_of(part, "prefill_seconds")
            seconds = [Ranged.of(prefill + rounds_of(part, "decode_seconds", new)) for new in outputs]
            lines.append((f"{tokens:,}", name, Ranged.of(prefill), *seconds))
    return MeasuredTable(
        name="kvec-table-9",
        title="Table 9: seconds by input and output length",
        caption="Lengths at scale=mini are a quarter (input) and a tenth (output) of the paper's, which does not "
        f"name its budget; ours are {rows['budget_slots'].iloc[0]} slots for the prompt.",
        conditions=run_conditions(rows),
        columns=("input tokens", "policy", "prompt alone", *(f"{new:,} new" for new in outputs)),
        lines=tuple(lines),
    )


PRINTED_COMPLEXITY = {
    "keydiff": "O(N + B)",
    "tova": "O(N + B)",
    "h2o": "O(NB + B²)",
    "snapkv": "O((N + B)L)",
    "sink": "O(N)",
}


def keydiff_table_4(results: Path, scale: str = "") -> MeasuredTable:
    """What scoring adds to one block, counted and timed, and how it grows with N and B."""
    rows = nearest_costs(results, scale, "keydiff/table_4")
    shape = measured_widths(rows)
    sizes = sorted(set(zip(rows["budget_slots"], rows["block_size"], strict=True)), key=lambda each: (each[1], each[0]))
    (slots, block), *larger = sizes
    floor = {size: block_cost(rows, "window", size) for size in sizes}
    at_size = rows[(rows["budget_slots"] == slots) & (rows["block_size"] == block)]
    at_block = partial(by_round, at_size, quantity="block_seconds")
    lines: list[tuple[Value, ...]] = []
    for name in ordered_policies(rows["policy"]):
        if name == "window":
            continue
        own = {size: block_cost(rows, name, size) for size in sizes}
        added = {size: own[size][0] - floor[size][0] for size in sizes}
        growth = [added[size] / added[slots, block] if added[slots, block] > 0 else None for size in larger]
        formula = None
        if name == "keydiff" and shape:
            formula = shape.layers * shape.kv_heads * flop_formulas.keydiff_score_flop(slots + block, shape.head)
        printed = PRINTED_COMPLEXITY.get(name.partition("/")[0], "")
        lines.append(
            (
                name,
                printed,
                added[slots, block],
                formula,
                *growth,
                Ranged.of(1000 * (at_block(name) - at_block("window"))),
            )
        )
    return MeasuredTable(
        name="keydiff-table-4",
        title="Table 4, counted and timed",
        caption="One block more at a full cache: what a policy computes beyond a window that scores nothing, over "
        "all layers and heads, selection left out as in the paper. H2O's sums and SnapKV's window count the "
        f"attention rows that they read. The formula is Eq. A.1 at {slots:,} + {block} keys. Milliseconds below the "
        "spread of the rounds mean nothing.",
        conditions=(f"N = {slots:,} slots, B = {block} tokens.", *run_conditions(rows)),
        columns=(
            "policy", "time printed", "FLOP a block, counted", "by the formula",
            *(f"× at N = {n:,}, B = {b}" for n, b in larger), "ms a block beyond the window",
        ),
        lines=tuple(lines),
    )  # fmt: skip


BASE = "h2o/keydiff"


def caote_table_6(results: Path, scale: str = "") -> MeasuredTable:
    """What CAOTE adds to reading a prompt: by the paper's formulas, counted, and in time."""
    rows = nearest_costs(results, scale, "caote/table_6")
    lengths = sorted(set(rows["prompt_tokens"]))
    lines = [line for tokens in lengths for line in _overhead_lines(rows, tokens, "prompt", flop_formulas.prefill_flop)]
    return MeasuredTable(
        name="caote-table-6",
        title="Table 6: what CAOTE adds to a prompt",
        caption=f"Prompts in blocks of {rows['block_size'].iloc[0]} under {rows['budget_slots'].iloc[0]} slots, over "
        "H2O. By the formulas (Eqs. 32, 34, 35) the correction is made once over the prompt; counted and timed is "
        "what our implementation does, once for each block that evicts, relative to the dense prompt. Printed values "
        f"do not follow from the formulas: {_formula_ratios((4096, 8192, 32768), flop_formulas.prefill_flop)} at "
        "Llama-3.1-8B's shape.",
        conditions=run_conditions(rows),
        columns=("tokens", "policy", "formula, of prefill", "counted, of dense", "time, of H2O's", "prompt, s"),
        lines=tuple(lines),
    )


def caote_table_7(results: Path, scale: str = "") -> MeasuredTable:
    """What CAOTE adds to one generated token: by the paper's formulas, counted, and in time."""
    rows = nearest_costs(results, scale, "caote/table_7")
    lines = [
        line
        for slots in sorted(set(rows["prompt_tokens"]))
        for line in _overhead_lines(rows, slots, "step", flop_formulas.decode_flop)
    ]
    return MeasuredTable(
        name="caote-table-7",
        title="Table 7: what CAOTE adds to a generated token",
        caption="One step over a full cache of so many slots, over H2O, relative to a dense step over as many. At "
        "Llama-3.1-8B's shape the formulas (Eqs. 33 to 35) give "
        f"{_formula_ratios((512, 1024), flop_formulas.decode_flop)}.",
        conditions=run_conditions(rows),
        columns=("slots", "policy", "formula, of generation", "counted, of dense", "time, of H2O's", "step, s"),
        lines=tuple(lines),
    )  # fmt: skip


def _overhead_lines(
    rows: pd.DataFrame, tokens: int, what: str, whole: flop_formulas.FlopFormula
) -> list[tuple[Value, ...]]:
    part, shape = rows[rows["prompt_tokens"] == tokens], measured_widths(rows)
    counted = {name: value_of(rows_of_policy(part, name), f"{what}_operations") for name in set(part["policy"])}
    seconds = {name: by_round(part, name, f"{what}_seconds") for name in set(part["policy"])}
    taken = {name: (Ranged.of(own / seconds[BASE]), Ranged.of(own)) for name, own in seconds.items()}
    lines: list[tuple[Value, ...]] = [(f"{tokens:,}", "dense", None, 0.0, *taken["dense"])]
    for name, formula in (
        (BASE, None),
        ("caote_h2o", flop_formulas.caote_flop),
        ("fastcaote_h2o", flop_formulas.fastcaote_flop),
    ):
        ratio = formula(tokens, shape) / whole(tokens, shape) if formula and shape else None
        added = (counted[name] - counted[BASE]) / counted["dense"]
        lines.append((f"{tokens:,}", name, ratio, added, *taken[name]))
    return lines


def _formula_ratios(lengths: Sequence[int], whole: flop_formulas.FlopFormula) -> str:
    shape = flop_formulas.LLAMA_3_1_8B
    found = (
        f"{formula(n, shape) / whole(n, shape):.3g} ({name}, {n:,})"
        for name, formula in (("CAOTE", flop_formulas.caote_flop), ("FastCAOTE", flop_formulas.fastcaote_flop))
        for n in lengths
    )
    return ", ".join(found)
