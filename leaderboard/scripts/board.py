"""Page script; see `leaderboard/screens/board.py`."""

from leaderboard.screens.board import render

if __name__ == "__main__":
    render()
