"""Page script; see `leaderboard/run_page.py`."""

from leaderboard.run_page import render

if __name__ == "__main__":
    render()
