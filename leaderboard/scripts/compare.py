"""Page script; see `leaderboard/compare_page.py`."""

from leaderboard.compare_page import render

if __name__ == "__main__":
    render()
