"""The named presets of policies.md 2, and the rounding they share."""

from tests.reference import presets
from tests.reference.caote import Caote
from tests.reference.selection import largest_remainder


def test_every_preset_of_section_2_exists():
    listed = {
        "h2o": "keydiff original coldcompress",
        "tova": "keydiff original",
        "snapkv": "keydiff kvec adakv",
        "pyramidkv": "kvec",
        "ada-snapkv": "kvec",
        "ada-pyramid": "kvec",
        "headkv": "original",
        "l2": "hashevict original",
        "scissorhands": "hashevict",
        "fastgen": "hashevict",
        "hashevict": "paper released-code",
        "keydiff": "default",
        "buzz": "default",
        "kvec": "default",
    }
    for method, variants in listed.items():
        for variant in variants.split():
            presets.PRESETS[f"{method}/{variant}"]
    # h2o/buzz needs explicit sizes and in-cache positions; gemfilter/llama31-8b is no cache policy.


def test_presets_wrap_bases_with_caote():
    policy = presets.make("fastcaote+snapkv/keydiff", window=5)
    assert isinstance(policy, Caote)
    assert policy.fast
    assert policy.base.window == 5


def test_largest_remainder():
    from fractions import Fraction

    thirds = [Fraction(16), Fraction(32, 3), Fraction(16, 3), Fraction(0)]
    assert largest_remainder(thirds, 32) == [16, 11, 5, 0]
    assert largest_remainder([Fraction(1, 2)] * 3, 2) == [1, 1, 0]
