"""Page script; see `leaderboard/screens/question.py`."""

from leaderboard.screens.question import render

if __name__ == "__main__":
    render()
