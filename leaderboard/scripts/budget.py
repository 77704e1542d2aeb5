"""Page script; see `leaderboard/budget_page.py`."""

from leaderboard.budget_page import render

if __name__ == "__main__":
    render()
