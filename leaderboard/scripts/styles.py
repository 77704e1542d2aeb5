"""Page script; see `leaderboard/style_page.py`."""

from leaderboard.style_page import render

if __name__ == "__main__":
    render()
