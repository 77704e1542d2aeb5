"""Page script; see `leaderboard/judge_page.py`."""

from leaderboard.judge_page import render

if __name__ == "__main__":
    render()
