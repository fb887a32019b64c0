"""DropKV: a worked example, and that a score is the change of the outputs that it claims to be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from views import view

from policies import PolicyError
from policies.caote import CAOTE
from policies.dropkv import DropKV


class Rows:
    """Attention of a window of queries over the slots: (w, N) probabilities, one head; zero for a missing query."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = torch.tensor(rows)
        self.asked_for: list[int] = []

    def probabilities_from(self, queries: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        places = asked.flatten()
        self.asked_for += places.tolist()
        return (self.rows[places] * (places >= 0).unsqueeze(-1)).view(1, 1, 1, len(places), -1)


def shown(rows: list[list[float]], values: list[list[float]], asked: list[int]):
    made = view(values=values)
    state = {"queries": torch.zeros(1, 1, len(asked), 2), "asked": torch.tensor([asked])}
    return replace(made, attention=Rows(rows), state=state)


def test_worked_example():
    """policies.md 3.25: one query, p = .5, .25, .25 over values (4, 0), (0, 0), (0, 4): o = (2, 1)."""
    scorer = DropKV(window=1, kernel=1, epsilon=1e-12)
    found = scorer.score(shown([[0.5, 0.25, 0.25]], [[4.0, 0.0], [0.0, 0.0], [0.0, 4.0]], [0]))
    # |o - v|² = 5, 5, 13; (p / (1 - p))² = 1, 1/9, 1/9
    assert found.flatten().tolist() == pytest.approx([5, 5 / 9, 13 / 9])


def test_the_score_is_the_sum_of_what_outputs_change():
    """Each output is computed again without each slot, its other probabilities raised to sum to 1."""
    draw = torch.Generator().manual_seed(5)
    rows, values = torch.rand(3, 6, generator=draw).softmax(-1), torch.randn(6, 2, generator=draw)
    found = DropKV(3, 1, 1e-12).score(shown(rows.tolist(), values.tolist(), [0, 1, 2])).flatten()
    for slot in range(6):
        rest = [j for j in range(6) if j != slot]
        without = rows[:, rest] / rows[:, rest].sum(-1, keepdim=True) @ values[rest]
        assert found[slot].item() == pytest.approx(((without - rows @ values) ** 2).sum().item(), rel=1e-4)


def test_of_one_query_it_is_the_square_of_caote():
    """CAOTE's error of an eviction, for one row of attention: the same residual."""
    rows, values = [[0.5, 0.2, 0.3]], [[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]
    made = shown(rows, values, [0])
    errors = CAOTE().correct(torch.tensor(rows[0]).view(1, 1, 3), made).flatten()
    found = DropKV(1, 1, 1e-12).score(made).flatten()
    assert found.sqrt().tolist() == pytest.approx(errors.tolist(), rel=1e-5)


def test_a_window_that_is_not_full_yet_counts_what_it_has():
    made = shown([[0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [-1, -1, 0])
    assert DropKV(3, 1).score(made).flatten().tolist() == pytest.approx([0.5, 0.5], rel=1e-4)
    assert made.attention.asked_for == [-1, -1, 0]


def test_a_slot_with_nearly_all_attention_keeps_its_digits():
    """There |o - v| is a millionth of |v|, and p / (1 - p) a million: fp32 would lose the first and blow it up."""
    rest = 1e-6
    rows, values = [[1 - rest, rest]], [[3.0, 4.0], [-4.0, 3.0]]
    found = DropKV(1, 1, 1e-12).score(shown(rows, values, [0]))[0, 0, 0]
    kept = torch.tensor(rows)[0, 0]  # as fp32 has it
    assert found.item() == pytest.approx(50 * (kept**2).item(), rel=0.1)  # without slot 0 the output is v_1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"window": 0}, "at least 1 row"), ({"kernel": 4}, "odd pooling kernel"), ({"epsilon": 0.0}, "must be above 0")],
)
def test_wrong_settings_are_refused(settings, sentence):
    with pytest.raises(PolicyError, match=sentence):
        DropKV(**settings)
