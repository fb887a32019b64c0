"""``python -m harness.lm_eval …``: the command ``lm_eval`` with the model ``kvreplica`` known to it.

    python -m harness.lm_eval --model kvreplica --tasks gsm8k \\
        --model_args model=testbed,policy=keydiff,budget=25%,block_size=32,prompt=blocked

lm-eval 0.4 looks for models in its own package only (it reads no entry points), so that the plain ``lm_eval`` cannot
find ours. Every other option is lm-eval's own.
"""

from __future__ import annotations

from harness.plain_words import errors_in_plain_words


def main() -> None:
    """lm-eval's command line. Exit code 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        from lm_eval.__main__ import cli_evaluate

        import harness.lm_eval.model  # noqa: F401  registers the model

        cli_evaluate()


if __name__ == "__main__":
    main()
