"""`python -m harness cells`: what a cell is made of, and why two differ."""

from __future__ import annotations

import pytest
from harness_stores import description, opened

from harness.cli.cells import main


def made(selection: str, view: str = "aa", **more) -> dict:
    code = {"policies/selection.py": selection, "policies/view.py": view}
    config = {"code": {"policy": selection + view}, "budget": {"slots": more.pop("slots", 64)}}
    return description(sources={"policy": code}, config=config, git="abc-dirty", **more)


@pytest.fixture
def asked(tmp_path, capsys):
    """Three cells, and a function that runs a command line on them and returns what it printed."""
    _, ids = opened(tmp_path, made("11"), made("22"), made("11", slots=128))

    def ask(*words: str) -> str:
        main([*words, f"results_dir={tmp_path}"])
        return capsys.readouterr().out

    return ask, ids


def test_show_names_fields_files_and_provenance(asked):
    ask, (first, _, _) = asked
    printed = ask("show", first[:6])
    assert printed.startswith(first)
    for line in ("  budget.slots = 64", "  policy.class = sink", "  11  policies/selection.py", "  git: abc-dirty"):
        assert line in printed.splitlines()


def test_diff_says_the_file_where_code_differs_and_nothing_else(asked):
    ask, (first, second, _) = asked
    assert ask("diff", first, second).splitlines() == [
        f"{first} → {second}",
        "  code of the policy, policies/selection.py: 11 → 22",
    ]


def test_diff_says_the_field_where_settings_differ(asked):
    ask, (first, _, third) = asked
    assert ask("diff", first, third).splitlines()[1:] == ["  budget.slots: 64 → 128"]
    assert "made of the same" in ask("diff", first, first)


@pytest.mark.parametrize(("start", "sentence"), [("zz", "There is no cell 'zz' among the 3 cells"), ("", "3 cells")])
def test_an_id_that_is_unknown_or_stands_for_several_is_one_sentence(asked, capsys, start, sentence):
    ask, _ = asked
    with pytest.raises(SystemExit) as end:
        ask("show", start)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
