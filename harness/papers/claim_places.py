"""Where a page states its claims: each in full at one table or figure, as a link at the others it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.papers.claim_ledger import Claim
from harness.papers.claim_verdicts import Verdict


@dataclass(frozen=True)
class ClaimAcross:
    """A claim and its verdict on each model that was measured: (name of the model, verdict)."""

    claim: Claim
    found: tuple[tuple[str, Verdict], ...]


@dataclass(frozen=True)
class ItemClaims:
    """The claims of one item. ``elsewhere``: (claim, name of the item where it stands in full)."""

    own: tuple[ClaimAcross, ...] = ()
    elsewhere: tuple[tuple[ClaimAcross, str], ...] = ()


@dataclass(frozen=True)
class ClaimPlaces:
    """``without_item``: claims that rest on no item of the page."""

    by_item: Mapping[str, ItemClaims] = field(default_factory=dict)
    without_item: tuple[ClaimAcross, ...] = ()

    def at(self, item: str) -> ItemClaims:
        """The claims of an item, by its name; none for an item that no claim rests on."""
        return self.by_item.get(item, ItemClaims())


def claims_across(by_model: Sequence[tuple[str, Sequence[Verdict]]]) -> list[ClaimAcross]:
    """The claims of one paper with their verdicts on several models; each model has one verdict on every claim."""
    return [
        ClaimAcross(of_claim[0].claim, tuple(zip((name for name, _ in by_model), of_claim, strict=True)))
        for of_claim in zip(*(found for _, found in by_model), strict=True)
    ]


def place_claims(found: Sequence[ClaimAcross], items: Sequence[str]) -> ClaimPlaces:
    """Each claim in full at the first of its items, in the order of ``items``: names, the measured ones first."""
    own: dict[str, list[ClaimAcross]] = {name: [] for name in items}
    elsewhere: dict[str, list[tuple[ClaimAcross, str]]] = {name: [] for name in items}
    without = []
    for each in found:
        named = [name for name in items if name in each.claim.items]
        if not named:
            without.append(each)
            continue
        own[named[0]].append(each)
        for name in named[1:]:
            elsewhere[name].append((each, named[0]))
    by_item = {name: ItemClaims(tuple(own[name]), tuple(elsewhere[name])) for name in items}
    return ClaimPlaces(by_item, tuple(without))
