"""``python -m harness``: the command line (`harness.cli.main`)."""

from harness.cli.main import main

if __name__ == "__main__":
    main()
