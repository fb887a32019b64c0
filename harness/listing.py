"""``python -m harness list …``: what there is to choose from, one line each, read from the files themselves."""

from __future__ import annotations

from pathlib import Path

from harness.user_error import UserError

CONF = Path(__file__).parent.parent / "conf"
GROUPS = {"policies": "policy", "tasks": "task", "models": "model", "exps": "exp"}


def names(group: str) -> list[str]:
    """Every option of a configuration group, as it is typed after ``=``."""
    folder = CONF / group
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml"))


def listing(what: str) -> str:
    """One line per option: its name, and the first comment of its file. Raises `UserError` for an unknown list."""
    if what not in GROUPS:
        from policies import nearest  # it loads torch, which shell completion must not wait for

        raise UserError(f"There is no list of '{what}'. {nearest(what, GROUPS)}")
    options = names(GROUPS[what])
    width = max(map(len, options))
    return "\n".join(f"{name:<{width}}  {_first_comment(GROUPS[what], name)}" for name in options)


def _first_comment(group: str, name: str) -> str:
    lines = (CONF / group / f"{name}.yaml").read_text().splitlines()
    comments = (line.lstrip("# ") for line in lines if line.startswith("#") and not line.startswith("# @"))
    return next(comments, "")
