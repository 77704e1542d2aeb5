"""`python -m ragmeter.cli`: the command without its script."""

from ragmeter.cli import main

main()
