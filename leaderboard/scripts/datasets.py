"""Page script; see `leaderboard/dataset_page.py`."""

from leaderboard.dataset_page import render

if __name__ == "__main__":
    render()
