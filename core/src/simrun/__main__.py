"""``python -m simrun``, which is the command line."""

from simrun.cli import main

main(prog_name="simrun")
