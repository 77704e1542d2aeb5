"""Page script; see `leaderboard/submit_page.py`."""

from leaderboard.submit_page import render

if __name__ == "__main__":
    render()
