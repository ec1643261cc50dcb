"""``python -m skitter``: the same as the command ``skitter``."""

from skitter.cli.main import main

main()
