"""python -m graphrun."""

from graphrun.cli import main

main()
