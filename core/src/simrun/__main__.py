"""``python -m simrun`` is ``simrun``."""

from simrun.cli import main

main()
