"""Extraction of the answer from a reply."""

from __future__ import annotations

import pytest

from methods.readers.extract import short_answer


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
        ("I read them.\nThe works stand in Rome.\nSo the answer is: Rome", "Rome"),
        ("The works stand in Rome.\n\n#### Rome", "Rome"),
        ("Therefore, the final answer is Rome.", "Rome"),
        ("Of course! The answer is Rome.", "Rome"),
        ("Certainly!\n\nRome", "Rome"),
        ("Answer\n======\nRome", "Rome"),
        ("答案：Rome", "Rome"),
        ("Réponse : Rome", "Rome"),
        ("$\\text{Rome}$", "Rome"),
        ("\\(\\boxed{Rome}\\)", "Rome"),
        ("\\textbf{Rome}", "Rome"),
        ("| Answer |\n|---|\n| Rome |", "Rome"),
        ("| Question | Answer |\n|:--|--:|\n| Where? | Rome |", "Rome"),
        ("<final>Rome</final>", "Rome"),
        ("<b>Rome</b>", "Rome"),
        ("{'answer': 'Rome'}", "Rome"),
        ("«Rome»", "Rome"),
        ('{"answer": null}', ""),
        ('```json\n{\n  // as passage 1 says\n  "reason": "see http://a.b, }",\n  "answer": "Rome",\n}\n```', "Rome"),
        ('{"reason": "It stands /* there */.", /* so */ "answer": "Rome",}', "Rome"),
        ("{'answer': 'Rome', 'confidence': 0.9, 'sure': True}", "Rome"),
        ("['Rome']", "Rome"),
        ("Answer: **Rome** – in Italy", "Rome – in Italy"),
        ("**Answer:** **Rome** (Italy)", "Rome (Italy)"),
        ("**Answer: ** Rome", "Rome"),
        ('{"answer": {"text": "Rome", "confidence": 0.9}}', "Rome"),
        ('{"answer": "Rome", "reason": "It sta', "Rome"),
        ('```json\n{"answer": "the \\"Salt\\u0020Road', 'the "Salt Road'),
        ("\ufeff\u200bRome\u200b", "Rome"),
        ("Answer: \u200bRome", "Rome"),
        ("الإجابة: روما", "روما"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nRome<|eot_id|>", "Rome"),
        ("assistant\n\nRome", "Rome"),
        ("Q: Where?\nA: Rome", "Rome"),
        ("**Q:** Where?\n\n**A:** Rome\n\nQ: When?\nA: 1900", "Rome"),
        ("Question: Where?\nAnswer: Rome\n\nQuestion: When?\nAnswer: 1900", "Rome"),
        ("My final answer is Rome.", "Rome"),
        ("The answer to the question is Rome.", "Rome"),
        ("罗马。", "罗马"),
        ("答案是「罗马」。", "罗马"),
        ("Svar: Rome", "Rome"),
        # What these steps must leave alone.
        ('"Salt" and "Road"', '"Salt" and "Road"'),
        ("The answer island", "The answer island"),
        ("Rome\nThe answer is found in passage 1.", "Rome"),
        ("1. FC Rome", "1. FC Rome"),
        ("$5 million", "$5 million"),
        ("Sure", "Sure"),
        ('{"name": "a", "text": "b"}', '{"name": "a", "text": "b"}'),
        ("{x} and {y", "{x} and {y"),
        ("['Rome', 'Paris']", "['Rome', 'Paris']"),
        ("{'Rome', 'Paris'}", "{'Rome', 'Paris'}"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("So It Goes", "So It Goes"),
        ("A: Rome", "A: Rome"),
        ("Q: Are We Not Men?", "Q: Are We Not Men?"),
        ("。", "。"),
    ],
)
def test_extraction_keeps_only_the_answer(reply: str, answer: str) -> None:
    assert short_answer(reply) == answer


@pytest.mark.parametrize("reply", ["Rome [1], [2]", "Rome – [1]", "According to passage [1], Rome", "Rome. [1]; [2]"])
def test_citation_marks_are_removed_with_their_separators(reply: str) -> None:
    assert short_answer(reply, lambda number: number <= 2) == "Rome"
