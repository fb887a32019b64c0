"""Where needles go, and how much text fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.haystack import Haystack, most_that_fit, novels

TEXT = (
    "One two three four five. Six seven eight nine ten eleven twelve thirteen, fourteen fifteen sixteen. "
    "“Seventeen eighteen!” Nineteen went to Mr. Twenty and twenty-one—twenty-two waited"
)


@pytest.fixture
def haystack():
    return Haystack(TEXT)


def bury(haystack, *needles):
    return haystack.bury(len(haystack.cuts), needles)


def test_depth_0_is_the_very_start_and_depth_1_the_very_end(haystack):
    assert bury(haystack, (0, "NEEDLE.")) == f"NEEDLE. {TEXT}"
    assert bury(haystack, (1, "NEEDLE.")) == f"{TEXT} NEEDLE."


def test_a_needle_follows_the_nearest_sentence_end_before_its_depth(haystack):
    depth = TEXT.index("seven eight") / len(TEXT)
    assert bury(haystack, (depth, "NEEDLE.")) == TEXT.replace("five. Six", "five. NEEDLE. Six")


def test_a_closing_quote_belongs_to_its_sentence(haystack):
    depth = TEXT.index("went") / len(TEXT)
    assert "“Seventeen eighteen!” NEEDLE. Nineteen" in bury(haystack, (depth, "NEEDLE."))


def test_far_from_a_sentence_end_a_needle_stands_between_words(haystack):
    depth = TEXT.index("fourteen") / len(TEXT)
    assert "thirteen, NEEDLE. fourteen" in bury(haystack, (depth, "NEEDLE."))


def test_a_title_is_no_sentence_end(haystack):
    depth = TEXT.index("and twenty") / len(TEXT)
    assert "Mr. Twenty NEEDLE. and twenty-one" in bury(haystack, (depth, "NEEDLE."))


def test_needles_at_one_depth_find_places_of_their_own_and_the_first_has_the_first_choice(haystack):
    depth = TEXT.index("seven eight") / len(TEXT)
    buried = bury(haystack, (depth, "FIRST."), (depth, "SECOND."), (depth, "THIRD."))
    assert "five. FIRST. Six" in buried
    assert buried.count("SECOND.") == buried.count("THIRD.") == 1
    without = buried.replace(" FIRST.", "").replace(" SECOND.", "").replace(" THIRD.", "")
    assert without == TEXT


def test_text_is_cut_after_any_word_even_before_a_dash(haystack):
    pieces = haystack.cuts.index(TEXT.index("—twenty-two")) + 1
    assert haystack.bury(pieces, []).endswith("and twenty-one")


def test_needles_stand_between_words_only(haystack):
    dash = TEXT.index("—twenty-two")
    assert dash in haystack.cuts
    assert dash not in haystack.gaps


@given(
    steps=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    low=st.integers(0, 60),
    spare=st.integers(0, 300),
)
def test_most_that_fit_is_the_largest_size_within_the_limit(steps, low, spare):
    sizes = [sum(steps[:size]) for size in range(len(steps) + 1)]
    low = min(low, len(steps))
    limit = sizes[low] + spare
    expected = max(size for size in range(len(sizes)) if sizes[size] <= limit)
    assert most_that_fit(sizes.__getitem__, limit, low, len(steps)) == expected


@pytest.mark.parametrize("text", ["a  b", "a   ", "  a", "a—b", "word— — —", "a.b c", "one", novels()[0].text[:3000]])
def test_the_last_cuts_are_those_of_the_whole_text(text):
    haystack = Haystack(text)
    for count in (1, 2, 3):
        assert haystack.last_cuts(count) == haystack.cuts[-count:]
