"""Page script; see `leaderboard/screens/run.py`."""

from leaderboard.screens.run import render

if __name__ == "__main__":
    render()
