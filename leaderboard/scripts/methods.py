"""Page script; see `leaderboard/screens/method.py`."""

from leaderboard.screens.method import render

if __name__ == "__main__":
    render()
