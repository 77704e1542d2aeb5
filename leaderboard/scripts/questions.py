"""Page script; see `leaderboard/question_page.py`."""

from leaderboard.question_page import render

if __name__ == "__main__":
    render()
