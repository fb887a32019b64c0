"""Claims about diagnostics, costs and counts: their columns are right, and they are decided as scores are."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from harness.papers import claim_costs, claim_diagnostics, claim_operations
from harness.papers.cell_index import CellIndex, NoCellError
from harness.papers.claim_ledger import Claim, Comparison, claims
from harness.papers.claim_measurements import EVERY_QUANTITY, Measurements, Observations
from harness.papers.claim_verdicts import verdicts
from harness.papers.efficiency_rows import COLUMNS, save_rows
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.figures.figure_index import FIGURES, TABLES
from harness.papers.published import PAPERS
from harness.store.store import Store

ABOUT_QUANTITIES = [claim for paper in PAPERS for claim in claims(paper) if any(c.quantity for c in claim.comparisons)]
COMPARED = [each for claim in ABOUT_QUANTITIES for each in claim.comparisons]
PROMPTS = [f"L512-r{number}" for number in range(12)]


def columns_of(quantity: str, frame: pd.DataFrame, *names: str) -> dict[str, dict[str, float]]:
    """By column, the values by prompt."""
    found = claim_diagnostics.QUANTITIES[quantity].columns(frame, names)
    return {name: values.to_dict() for name, values in found.items()}


def of_one_prompt(quantity: str, frame: pd.DataFrame, *names: str) -> dict[str, float]:
    return {name: values["p"] for name, values in columns_of(quantity, frame.assign(sample_id="p"), *names).items()}


def asked(paper: str, quantity: str, **more) -> Comparison:
    """Of some methods; numbers are columns too."""
    given = {"kind": "above", "quantity": quantity, "left": "keydiff", "right": "tova", **more}
    return Comparison.parse(given, {"budgets": ["30%", "50%"]})


# Which quantities there are.


def test_claims_name_quantities_that_exist_and_every_quantity_has_a_claim():
    assert {each.quantity for each in COMPARED} == set(EVERY_QUANTITY)
    assert len(set(EVERY_QUANTITY)) == len(EVERY_QUANTITY)


def test_what_a_quantity_needs_is_measured_with_an_item_of_its_paper():
    for each in claim_diagnostics.QUANTITIES.values():
        assert (each.paper, each.item) in {**FIGURES, **TABLES}
        assert each.needs in claim_diagnostics.diagnostics_for_claims(each.paper, each.item)
        # Fewer could not reach the level after Holm's correction, however clear they are: 2 / 2**10 * 25 > .02.
        assert min(each.needs.samples(scale) for scale in ("mini", "full")) >= 12


# Values of diagnostics.


def test_volumes_leave_out_heads_that_are_flat_under_some_policy():
    frame = pd.DataFrame({"policy": ["keydiff", "keydiff", "sink", "sink"], "layer": 0, "head": [0, 1, 0, 1],
                          "log_det": [5.0, 2.0, -np.inf, 1.0], "keys": 9})  # fmt: skip
    assert of_one_prompt("volume", frame, "keydiff", "sink", "tova") == {"keydiff": 2.0, "sink": 1.0}


def test_every_head_means_the_worst_head_and_every_layer_the_worst_layer():
    heads = pd.DataFrame({"layer": [0, 1], "cosine_of_means": [-0.5, 0.1]})
    assert of_one_prompt("cosine_of_means", heads) == {"the greatest head": 0.1}
    ranks = pd.DataFrame({"layer": [0, 0, 1, 1], "pair": ["caote-fastcaote"] * 3 + ["base-caote"],
                          "spearman": [0.9, 0.7, 0.85, 0.1]})  # fmt: skip
    assert of_one_prompt("score_ranks", ranks) == {"the lowest layer": pytest.approx(0.8)}


def test_norms_spread_by_head_in_units_of_their_mean():
    frame = pd.DataFrame({"key_norm": [2.0, 4.0], "key_norm_std": [1.0, 1.0], "query_norm": 5.0, "query_norm_std": 1.0})
    assert of_one_prompt("norm_spread", frame) == {"key norms": 0.375, "query norms": pytest.approx(0.2)}


def test_output_errors_are_sums_over_sums_in_each_layer_against_the_dense_run():
    frame = pd.DataFrame({"policy": "h2o/keydiff", "against": ["dense run"] * 3 + ["own states"], "layer": [0, 0, 1, 1],
                          "squared_error": [1.0, 3.0, 1.0, 99.0], "squared_norm": [2.0, 6.0, 10.0, 1.0]})  # fmt: skip
    assert of_one_prompt("output_error", frame, "h2o", "tova") == {"h2o": pytest.approx((0.5 + 0.1) / 2)}


def test_attention_loss_is_of_generated_tokens_from_which_something_is_hidden():
    frame = pd.DataFrame({"policy": "hashevict/paper", "phase": ["prompt", "decode", "decode", "decode"],
                          "queries": [50, 1, 1, 3], "evicted": [5.0, 0.0, 2.0, 2.0],
                          "loss": [0.9, 0.0, 0.4, 0.2]})  # fmt: skip
    assert of_one_prompt("attention_loss", frame, "hashevict") == {"hashevict": pytest.approx(0.25)}


def test_correlations_of_hashes_are_over_pairs_by_bits_and_by_depth():
    frame = pd.DataFrame({"layer": [0, 1, 0, 1, 0], "bits": [8, 8, 16, 16, 8], "over": ["pairs"] * 4 + ["keys"],
                          "pearson": [0.2, 0.4, 0.6, 0.8, 9.0]})  # fmt: skip
    assert of_one_prompt("hash_correlation", frame) == pytest.approx({"8 bits": 0.3, "16 bits": 0.7})
    depth = of_one_prompt("hash_correlation_by_depth", frame)
    assert depth == pytest.approx({"the last layers": 0.6, "the others": 0.4})


def test_the_last_layers_are_three_of_thirty_two():
    frame = pd.DataFrame({"layer": range(32), "bits": 8, "over": "pairs", "pearson": [0.0] * 29 + [1.0] * 3})
    assert of_one_prompt("hash_correlation_by_depth", frame) == {"the last layers": 1.0, "the others": 0.0}


def test_ranking_losses_are_shares_of_the_prompt():
    frame = pd.DataFrame({"ranking": ["l2", "lsh"], "tokens": 50, "difference": [10.0, 5.0]})
    assert of_one_prompt("ranking_loss", frame) == {"l2 ranking": 0.2, "lsh ranking": 0.1}


def test_what_snapkv_chooses_is_counted_without_its_window_after_the_prompt():
    window = list(range(10, 42))  # the last 32 of 42 tokens are kept anyway; 0 to 9 could be chosen
    heads = [(0, [0, 1, 2, 7, *window]), (1, [5, 9, *window])]
    held = [("snapkv/kvec", 0, "prompt", 42, 0, head, position) for head, kept in heads for position in kept]
    later = [("snapkv/kvec", 1, "decode", 43, 0, 0, 9), ("kvec/testbed", 0, "prompt", 42, 0, 0, 0)]
    frame = pd.DataFrame([*held, *later], columns=["policy", "step", "phase", "fed", "layer", "head", "position"])
    assert of_one_prompt("later_half", frame) == {"the smallest head": 0.25}


# Values of costs.


def cost(item: str, policy: str, quantity: str, rounds: list[float], **more):
    given = {"prompt": "one_shot", "block_size": 0, "prompt_tokens": 100, "new_tokens": 0, "budget_slots": 64,
             "budget": "", "unit": "s", "value": rounds[0], "low": min(rounds), "high": max(rounds),
             "repeats": len(rounds), "rounds": rounds, "model": "testbed", "scale": "mini", "dtype": "float32",
             "threads": 2, "git": "", "versions": "", "hardware": "", "device": "cpu",
             "created": "2026-05-04T10:00:00"}  # fmt: skip
    return {**given, "item": item, "policy": policy, "quantity": quantity, **more}


def measurements_in(folder) -> Measurements:
    """Those of a results folder without rows."""
    return Measurements(folder, FigureDataOfItems(pd.DataFrame(), Store(folder / "runs"), "mini"))


def stored(folder, *lines) -> Measurements:
    save_rows(pd.DataFrame(lines)[list(COLUMNS)], folder)
    return measurements_in(folder)


def test_speeds_have_a_value_per_round_and_budget_and_fastgens_settings_follow_the_budgets(tmp_path):
    item = "hashevict/table_1"
    own = [cost(item, "hashevict/paper", "prefill_seconds", [2.0, 4.0], budget=share) for share in ("30%", "50%")]
    other = [cost(item, "hashevict/paper", "prefill_seconds", [9.0, 9.0], budget="90%")]
    fast = [
        cost(item, f"fastgen (recovery={each})", "prefill_seconds", [10.0 * (i + 1), 50.0])
        for i, each in enumerate((0.7, 0.8))
    ]
    found = stored(tmp_path, *own, *other, *fast).observations(
        "hashevict", asked("hashevict", "prompt_speed", left="hashevict", right="fastgen")
    )
    assert (found.unit, found.exact) == ("rounds", False)
    assert found.columns["hashevict"].tolist() == [50.0, 25.0, 50.0, 25.0]
    assert found.columns["fastgen"].tolist() == [10.0, 2.0, 5.0, 2.0]
    assert found.columns["hashevict"].index.equals(found.columns["fastgen"].index)


def test_decoding_is_timed_over_the_longest_generation_and_overheads_over_both_ends(tmp_path):
    item, lines = "kvec/table_9", []
    for policy, prompt, short, long in (("snapkv/kvec", 1.0, 1.0, 9.0), ("kvec/testbed", 2.0, 1.0, 9.0)):
        lines += [
            cost(item, policy, "prefill_seconds", [prompt]),
            cost(item, policy, "decode_seconds", [short], new_tokens=10),
            cost(item, policy, "decode_seconds", [long], new_tokens=90),
        ]
    measured = stored(tmp_path, *lines)
    speed = measured.observations("kvec", asked("kvec", "decode_speed", left="kvec", right="snapkv"))
    assert speed.columns["kvec"].tolist() == [10.0]
    (overhead,) = [each for each in COMPARED if each.quantity == "time_overhead" and each.kind == "above"]
    found = measured.observations("kvec", overhead).columns
    assert found["after the fewest new tokens"].tolist() == [0.5]
    assert found["after the most new tokens"].tolist() == [pytest.approx(0.1)]


def test_medians_without_rounds_other_sizes_and_other_scales_are_named_as_missing(tmp_path):
    item, question = "buzz/throughput", asked("buzz", "decode_seconds", left="buzz", right="h2o")
    with pytest.raises(NoCellError, match=r"python -m scripts\.efficiency"):
        measurements_in(tmp_path).observations("buzz", question)
    one = cost(item, "buzz", "decode_seconds", [1.0], new_tokens=9)
    with pytest.raises(NoCellError, match="h2o in the costs"):
        stored(tmp_path, one).observations("buzz", question)
    both = [one, *(cost(item, "h2o/buzz", "decode_seconds", [1.0], new_tokens=9, prompt_tokens=n) for n in (1, 2))]
    with pytest.raises(NoCellError, match="the same sizes of buzz, h2o"):
        stored(tmp_path, *(dict(line, created="2026-05-05T10:00:00") for line in both)).observations("buzz", question)
    full = [dict(line, scale="full", created="2026-05-06T10:00:00") for line in both]
    with pytest.raises(NoCellError, match="scale=mini"):
        stored(tmp_path / "full alone", *full).observations("buzz", question)


def test_rounds_of_an_older_run_are_not_made_up():
    rows = pd.DataFrame([cost("buzz/throughput", "buzz", "decode_seconds", [1.0], new_tokens=9)]).drop(columns="rounds")
    with pytest.raises(NoCellError, match="the single rounds"):
        claim_costs.decode_speeds(claim_costs.StoredCosts("buzz", rows, ()), ["buzz"])


# Counts.


def test_overheads_follow_from_the_papers_formulas():
    """Equations 32 to 35 by hand, at Llama-3.1-8B's shape and the length where the share is greatest."""
    d, kv, inner, layers, vocabulary = 4096, 1024, 14336, 32, 128256
    prompt = 2 * layers * 4096 * d * (d + kv + inner + 2 * 4096 + 6) + d * vocabulary
    found = claim_operations.overheads(claim_operations.prefill_flop, claim_operations.PROMPTS)
    assert found["caote"] == pytest.approx(layers * 4096 * (7 * d + 3) / prompt)
    step = 2 * layers * d * (d + kv + inner + 2 * 1024 + 6) + d * vocabulary
    found = claim_operations.overheads(claim_operations.decode_flop, claim_operations.CACHES)
    assert found["fastcaote"] == pytest.approx((layers * 1024 * (4 * d + 3) + layers) / step)


def test_scoring_is_what_a_block_costs_beyond_a_window_and_its_growth_is_against_n_and_b(tmp_path):
    lines = []
    for slots, block in ((100, 10), (200, 10), (100, 20)):
        costs = {"window": 0, "keydiff": 2 * (slots + block), "tova/keydiff": 3 * (slots + block) ** 2,
                 "h2o/keydiff": 9 * slots * block, "snapkv/keydiff": 9 * slots * block}  # fmt: skip
        for policy, operations in costs.items():
            for quantity, value in (("block_operations", 1000.0 + operations), ("block_seconds", 1.0)):
                lines.append(cost("keydiff/table_4", policy, quantity, [value], budget_slots=slots, block_size=block))
    measured = stored(tmp_path, *lines)
    found = measured.observations("keydiff", asked("keydiff", "scoring_operations"))
    assert found.exact
    assert found.columns["keydiff"].tolist() == [220.0]
    growth = measured.observations("keydiff", asked("keydiff", "scoring_growth", right="1")).columns
    assert growth["keydiff"].tolist() == [pytest.approx(1.0)]
    assert growth["tova"].tolist() == [pytest.approx(210 / 110)]
    assert growth["1"].tolist() == [1.0]


def test_the_mean_key_and_all_pairs_keep_the_same_keys():
    assert claim_operations.kept_by_both() == {"keys that both keep": 1.0}


# From a folder to verdicts.


def diagnosed(folder, paper: str, item: str, diagnostic: str, frames: dict[str, pd.DataFrame]) -> Measurements:
    """Frames by sample for the first cell of an item at scale=mini, as `harness.runner.diagnostic_runs` writes them."""
    policy, task, budget, share_of, prompt, block = figure_cells(paper, item, "mini").keys[0]
    store = Store(folder / "diagnostics")
    labels = {"cell_id": "0" * 16, "model": "testbed", "policy": policy, "task": task, "budget": budget,
              "prompt": prompt, "block_size": block, "dtype": "float32", "seed": 0,
              "created": "2026-11-21"}  # fmt: skip
    share = {"share": 0.5, "share_of": share_of, "slots": None} if share_of else {"share": None, "slots": 1}
    store.describe(labels["cell_id"], {**labels, "config": json.loads(json.dumps({"budget": share}))})
    target = store.root / labels["cell_id"] / diagnostic
    target.mkdir(parents=True)
    for sample, frame in frames.items():
        frame.assign(sample_id=sample).to_parquet(target / f"{sample}.parquet", index=False)
    return measurements_in(folder)


def verdict_of(claim_id: str, beside):
    (claim,) = [each for each in ABOUT_QUANTITIES if each.id == claim_id]
    (found,) = verdicts([claim], CellIndex(pd.DataFrame()), "mini", beside)
    return found


def test_stored_diagnostics_decide_a_claim_with_prompts_as_units(tmp_path):
    rng = np.random.default_rng(0)
    frames = {name: pd.DataFrame({"layer": [0, 1], "query_head": 0, "keys": 63,
                                  "cosine_correlation": rng.normal(-0.4, 0.1, 2), "norm_correlation": 0.0})
              for name in PROMPTS}  # fmt: skip
    measured = diagnosed(tmp_path, "keydiff", "Figure 2", "key_attention", frames)
    found = verdict_of("KD-18", measured)
    assert found.outcome == "reproduced", found.reason
    assert found.n == len(PROMPTS)
    means = [frame["cosine_correlation"].mean() for frame in frames.values()]
    assert found.estimate == pytest.approx(-np.mean(means))


def test_without_diagnostics_a_claim_names_what_measures_it(tmp_path):
    found = verdict_of("KD-18", measurements_in(tmp_path))
    assert "the diagnostic key_attention: python -m harness figures paper=keydiff item=figure_2" in found.reason


def test_a_stored_frame_of_an_older_version_counts_as_not_measured(tmp_path):
    old = {name: pd.DataFrame({"layer": [0], "query_head": 0, "cosine_of_distinct": 0.1}) for name in PROMPTS}
    measured = diagnosed(tmp_path, "keydiff", "Figure 14", "key_query", old)
    with pytest.raises(NoCellError, match="the diagnostic key_query"):
        measured.observations(
            "keydiff", asked("keydiff", "cosine_to_mean_query", left="distinct keys", right="other keys")
        )


class Columns:
    """Observations that hold every comparison by a tenth of its numbers (``side`` 1), or fail it by as much (-1)."""

    def __init__(self, side: int) -> None:
        self.side = side

    def observations(self, paper: str, comparison: Comparison) -> Observations:
        exact = comparison.quantity in claim_operations.QUANTITIES
        rng = np.random.default_rng(len(comparison.quantity))
        units = range(1 if exact else 24)
        columns = {name: pd.Series(value + (0.0 if exact or name in self.numbers(comparison) else 0.02 * abs(value))
                                   * rng.standard_normal(len(units)), units)
                   for name, value in self.means(comparison).items()}  # fmt: skip
        return Observations(columns, "prompts", exact)

    @staticmethod
    def numbers(comparison: Comparison) -> dict[str, float]:
        found = {}
        for name in (each.method for each in comparison.methods()):
            try:
                found[name] = float(name)
            except ValueError:
                continue
        return found

    def means(self, comparison: Comparison) -> dict[str, float]:
        given = self.numbers(comparison)
        left = [each.method for each in comparison.left]
        if comparison.kind == "ordered":
            values = [10.0 + i for i in range(len(left))][:: self.side]
            return {name: given.get(name, value) for name, value in zip(left, values, strict=True)}
        right = {each.method: given.get(each.method, 10.0) for each in comparison.right}
        base = next(iter(right.values()))
        if comparison.kind == "between":
            own = base * ((comparison.low + comparison.high) / 2 if self.side > 0 else 2 * comparison.high)
        else:
            sign = self.side if comparison.kind == "above" else -self.side
            own = comparison.factor * base + 0.1 * sign * (abs(comparison.factor * base) or 1.0)
        return {**dict.fromkeys(left, own), **right}


@pytest.mark.parametrize("claim", ABOUT_QUANTITIES, ids=lambda claim: claim.id)
def test_a_claim_is_reproduced_where_its_columns_hold_it_and_not_where_they_fail_it(claim: Claim):
    """Between 0.97 and 1.03 a spread of 2 % in 24 rounds leaves no doubt: 1 ± 0.008 is the interval of the ratio."""
    for side, outcome in ((1, "reproduced"), (-1, "not reproduced")):
        (found,) = verdicts([claim], CellIndex(pd.DataFrame()), "mini", Columns(side))
        assert found.outcome == outcome, found.reason
