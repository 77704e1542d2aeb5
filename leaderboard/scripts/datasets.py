"""Page script; see `leaderboard/screens/dataset.py`."""

from leaderboard.screens.dataset import render

if __name__ == "__main__":
    render()
