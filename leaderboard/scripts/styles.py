"""Page script; see `leaderboard/screens/style.py`."""

from leaderboard.screens.style import render

if __name__ == "__main__":
    render()
