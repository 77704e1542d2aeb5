"""Page script; see `leaderboard/screens/compare.py`."""

from leaderboard.screens.compare import render

if __name__ == "__main__":
    render()
