"""Page script; see `leaderboard/screens/submit.py`."""

from leaderboard.screens.submit import render

if __name__ == "__main__":
    render()
