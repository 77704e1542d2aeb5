"""`python -m ragmeter`: the command without its script."""

from ragmeter.cli import main

if __name__ == "__main__":
    main()
