"""What a checkpoint is: a folder with `question/` and `triple/`, each a plain `SentenceTransformer`."""

QUESTION, TRIPLE = "question", "triple"
"""The towers' folders."""
