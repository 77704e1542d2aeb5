"""Page script; see `leaderboard/board_page.py`."""

from leaderboard.board_page import render

if __name__ == "__main__":
    render()
