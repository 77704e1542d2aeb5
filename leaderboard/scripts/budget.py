"""Page script; see `leaderboard/screens/budget.py`."""

from leaderboard.screens.budget import render

if __name__ == "__main__":
    render()
