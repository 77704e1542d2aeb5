"""Page script; see `leaderboard/method_page.py`."""

from leaderboard.method_page import render

if __name__ == "__main__":
    render()
