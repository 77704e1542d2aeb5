"""Replies reduced to the answer."""

from __future__ import annotations

import pytest

from methods.readers.extract import short


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Rome", "Rome"),
        ("  Answer: Rome.\nBecause it is.", "Rome"),
        ("The answer is: Rome", "Rome"),
        ("The final answer is Rome", "Rome"),
        ('"Salt Road"', "Salt Road"),
        ("\n\nyes\n", "yes"),
        ("Robert Downey Jr.", "Robert Downey Jr."),
        ("Washington D.C.", "Washington D.C."),
        ("The Answering Machine", "The Answering Machine"),
        ("3.5", "3.5"),
        (".", "."),
        ("", ""),
        ("Answer:", ""),
    ],
)
def test_only_the_answer_is_left(reply: str, answer: str) -> None:
    assert short(reply) == answer
