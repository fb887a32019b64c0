"""The claims, asked of the printed tables instead of our rows: as many cases hold as the audit of the papers found.

This holds the tables, the names and the claims together: a shifted column, a wrong preset or a wrong sign shows here.
"""

from __future__ import annotations

import pandas as pd
import pytest

from harness.papers.cell_index import CellIndex
from harness.papers.claim_evidence import collect_evidence
from harness.papers.claim_ledger import claims
from harness.papers.published import PAPERS, published_frame, row_metrics

# (cases that hold, all cases): a case is one baseline at one budget on one model.
IN_PRINT = {
    "KD-01": (16, 16),
    "KD-02": (16, 16),
    "KD-03": (2, 2),
    "KD-04": (0, 2),  # AUDIT F29
    "KD-05": (6, 6),
    "KD-06": (1, 2),  # F32
    "KD-07": (8, 8),
    "KD-08": (6, 6),
    "KD-09": (8, 8),
    "CA-01": (16, 16),
    "CA-02": (8, 8),
    "CA-03": (15, 16),  # F35
    "CA-04": (16, 16),
    "CA-05": (15, 16),  # F35
    "CA-08": (32, 32),
    "CA-09": (31, 32),  # F36
    "CA-13": (42, 42),
    "CA-15": (8, 12),  # F37
    "CA-16": (18, 18),
    "CA-17": (31, 32),  # F38
    "CA-19": (16, 16),
    "CA-22": (15, 15),
    "BZ-07": (4, 5),  # F46
    "BZ-08": (4, 5),  # F64
    "BZ-09": (4, 5),  # F46
    "BZ-11": (1, 1),
    "BZ-15": (8, 8),
    "BZ-16": (4, 4),
    "BZ-17": (5, 5),
    "HE-01": (5, 5),
    "HE-04": (1, 1),
    "HE-05": (16, 16),
    "HE-14": (9, 9),
    "KV-01": (20, 20),
    "KV-03": (3, 3),
    "KV-05": (5, 5),
    "KV-06": (298, 320),  # F51
    "KV-07": (10, 10),
    "KV-09": (1, 1),
    "KV-10": (2, 2),
}


def printed_rows(paper: str) -> pd.DataFrame:
    """Each printed cell as a cell of ours with two equal samples; the first unflagged number counts."""
    own = published_frame(paper)
    own = own[own["value"].notna() & (own["policy"] != "") & (own["our_task"] != "")]
    own = own[~own["our_task"].str.contains(",") & own["metric"].map(lambda metric: bool(row_metrics(metric)))]
    own = own[own["metric"] != "ppl"] if paper == "caote" else own  # the dense one, in other units than the gaps
    unit = {"tokens": "", "percent": "%", "none": "full"}
    out = pd.DataFrame(
        {
            "model": own["our_model"],
            "policy": own["policy"],
            "budget": (own["budget"] + own["budget_unit"].map(unit)).where(own["policy"] != "dense", "full"),
            "prompt": own["block_size"].map({"32": "blocked", "128": "blocked"}).fillna("one_shot"),
            "block_size": pd.to_numeric(own["block_size"], errors="coerce").replace(float("inf"), 0).fillna(0),
            "task": own["our_task"],
            "metric": own["metric"].map(lambda metric: row_metrics(metric)[-1]),
            "value": own["value"] / own["unit"].map({"points": 100, "percent": 100}).fillna(1),
            "created": "",
        }
    )
    out = out.assign(weight=1.0, document="", invalid="", coverage=out["value"], kv_bytes=1, state_bytes=0)
    out["slots_requested"] = pd.to_numeric(out["budget"].str.rstrip("%"), errors="coerce").fillna(-1)
    labels = ["model", "policy", "budget", "prompt", "block_size", "task"]
    out["cell_id"] = out[labels].astype(str).agg("|".join, axis=1)
    unflagged_first = (own["flag"] != "").argsort(kind="stable")
    out = out.iloc[unflagged_first].drop_duplicates(["cell_id", "metric"])
    return pd.concat([out.assign(sample_id=name) for name in ("s0", "s1")], ignore_index=True)


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_hold_in_print_as_the_audit_says(paper):
    index = CellIndex(printed_rows(paper))
    counted = {}
    for claim in claims(paper):
        if claim.id in IN_PRINT:
            found = collect_evidence(claim, index, "full").results
            counted[claim.id] = (sum(each.estimate > -1e-9 for each in found), len(found))
    assert counted == {name: count for name, count in IN_PRINT.items() if name in counted}
    assert counted
