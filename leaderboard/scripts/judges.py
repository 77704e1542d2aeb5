"""Page script; see `leaderboard/screens/judge.py`."""

from leaderboard.screens.judge import render

if __name__ == "__main__":
    render()
