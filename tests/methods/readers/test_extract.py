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
        ("Certainly! Based on the context, the answer is **Rome**.", "Rome"),
        ("Of course, from passage [2] it follows.", "Of course, from passage [2] it follows"),
        ("The passages name one city.\nIn summary, the answer is Rome.", "Rome"),
        ("To summarize, the answer is Rome.", "Rome"),
        ("Final Answer: The final answer is $3$. I hope it is correct.", "3"),
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
        # Objects within a text.
        ('{"reason": "It stands there.", "answer": "Rome"}\nI hope this helps!', "Rome"),
        ('Sure! {"answer": "Rome"}', "Rome"),
        ('They stand in Rome {see above}.\n\n{"answer": "Rome", "confidence": 0.9}', "Rome"),
        ('{"answer": 1.50}', "1.50"),
        ('{"answer": 1e3, "unit": "km"}', "1e3"),
        ('{"name": "final_answer", "arguments": {"answer": "Rome"}}', "Rome"),
        ('```json\n{"action": "Final Answer", "action_input": "Rome"}\n```', "Rome"),
        ("Thought 1: I look.\nAction 1: Search[works]\nObservation 1: in Rome\nAction 2: Finish[Rome]", "Rome"),
        # A repeated prompt.
        ("Question: Where?\n\nRome", "Rome"),
        ("Context: The works stand in Rome.\nQuestion: Where?\nAnswer: Rome", "Rome"),
        ("Passages:\n[1] Works: They stand in Rome.\n\nQuestion: Where?\n\nRome", "Rome"),
        ("<s>[INST] Where? [/INST] Rome </s>", "Rome"),
        ("<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\nRome<|im_end|>", "Rome"),
        ("<|start_header_id|>user<|end_header_id|>\n\nWhere?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nRome", "Rome"),
        ("<start_of_turn>user\nWhere?<end_of_turn>\n<start_of_turn>model\nRome<end_of_turn>", "Rome"),
        ("Human: Where?\n\nAssistant: Rome", "Rome"),
        ("Assistant: Rome", "Rome"),
        # Conclusions in the middle of a line, and in other languages.
        ("The works stand in Rome. So the answer is Rome.", "Rome"),
        ("They stand in Italy.\nTheir city is Rome. Therefore, the final answer is: **Rome**", "Rome"),
        ("Respuesta final: Rome", "Rome"),
        ("La réponse est : Rome", "Rome"),
        ("Die Antwort lautet Rome.", "Rome"),
        ("Endgültige Antwort: Rome", "Rome"),
        ("A resposta é Rome.", "Rome"),
        ("Окончательный ответ: Рим", "Рим"),
        ("最终答案是：**罗马**", "罗马"),
        ("答えはローマです。", "ローマ"),
        ("정답은 로마입니다.", "로마"),
        ("الإجابة هي: روما", "روما"),
        ("Câu trả lời: Rome", "Rome"),
        ("Odpověď: Rome", "Rome"),
        # Labels with a dash, a sign or another adjective.
        *(
            (f"{label}Rome", "Rome")
            for label in ("Answer - ", "Answer – ", "**Final answer** — ", "Answer = ", "Answer → ", "Antwort – ", "答案 - ")
        ),
        *(
            (f"{label}Rome", "Rome")
            for label in ("Brief answer: ", "**Direct Answer:** ", "The exact answer is ", "✅ Answer: ", "✅ ", "📍 **Answer:** ")
        ),
        *(
            (text, "Rome")
            for text in (
                "### ✅ Final Answer\n\n**Rome**",
                "**✅ Answer: Rome**",
                "**Rome** ✅",
                "They stand in Rome.\n\n👉 **Answer - Rome**",
            )
        ),
        # Actions with which agents end.
        *(
            (text, "Rome")
            for text in ('finish(answer="Rome")', "Finish(Rome)", "Action: `Finish[Rome]`", 'submit_answer("Rome", 0.9)', "Finish [Rome]")
        ),
        ('Thought: I know it.\n```py\nfinal_answer("Rome")\n```<end_code>', "Rome"),
        ('final_answer("L\'Aquila (Italy)")', "L'Aquila (Italy)"),
        ("Thought: I know it.\nAction: Final Answer\nAction Input: Rome\nObservation: ok", "Rome"),
        ('Action: final_answer\nAction Input: {"answer": "Rome"}', "Rome"),
        ('{"name": "finish", "parameters": {"answer": "Rome"}}', "Rome"),
        ('{"tool": "final_answer", "args": {"answer": "Rome"}}', "Rome"),
        ('{"type": "function", "function": {"name": "finish", "arguments": "{\\"answer\\": \\"Rome\\"}"}}', "Rome"),
        # Names of fields in other forms.
        ('{"Final Answer": "Rome", "confidence": 1}', "Rome"),
        ('{"finalAnswer": "Rome", "reason": "so"}', "Rome"),
        ('{"short-answer": "Rome", "reason": "so"}', "Rome"),
        ('[{"answer": "Rome", "passage": 1}]', "Rome"),
        ("{1: 'Rome', 2: 'Paris'}", "{1: 'Rome', 2: 'Paris'}"),
        # Sources before a statement in other languages.
        ("Basierend auf den Passagen lautet die Antwort: Rom", "Rom"),
        ("Laut Text 1 ist die Antwort: Rom", "Rom"),
        ("D'après les passages, la réponse est Rome.", "Rome"),
        ("Según los pasajes, la respuesta es Roma.", "Roma"),
        ("根据提供的段落，答案是罗马。", "罗马"),
        ("根据段落[1]，答案是：罗马", "罗马"),
        ("提供された文章によると、答えはローマです。", "ローマ"),
        ("제공된 문서에 따르면 정답은 로마입니다.", "로마"),
        # What these steps must leave alone.
        *(
            (text, text)
            for text in (
                "The Answer – Bloc Party",
                "Response - A",
                "Answer -5",
                "★ by David Bowie",
                "✅",
                "Rome ✅ Paris",
                "Finish(Rome (Italy))",
                "finish()",
            )
        ),
        *((text, text) for text in ("Segundo Sombra", "Selon Charlie, la réponse", "根据地", "[{'a': 1}, {'b': 2}]")),
        ('{"name": "search", "parameters": {"answer": "Rome"}}', '{"name": "search", "parameters": {"answer": "Rome"}}'),
        ('{"answers": "a", "text": "b"} and more', '{"answers": "a", "text": "b"} and more'),
        ("Rome. The answer is found in passage 1.", "Rome. The answer is found in passage 1."),
        ("Finish", "Finish"),
        ("Assistant:", "Assistant:"),
        ("Die Antwort auf alle Fragen", "Die Antwort auf alle Fragen"),
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


@pytest.mark.parametrize(
    "reply",
    [
        *("Rome [1], [2]", "Rome – [1]", "According to passage [1], Rome", "Rome. [1]; [2]", "Rome [1] and [2]", "Rome [1]、[2]"),
        *("Rome ([1], [2])", "Rome (Passage 1, Passage 2)", "Rome (Document [2])", "Rome (Docs 1-2)", "Rome（来源：[1]）", "Rome [文档1]"),
        *("Rome [citation:1][citation:2]", "Rome<sup>1</sup>", "Rome^[1]", "Rome [1†L1-L3]", "Rome \\[1\\]", "Rome (Sources: 1, 2)"),
        *("Rome [[1]](https://a.b/c)", "Rome [1](https://a.b/c).", "[1]: Rome", "According to [1] and [2], Rome"),
        *("Rome [Passage 1, Passage 2]", "Rome [doc_1]", "Rome (Passages: 1, 2)", "Rome (from Passage 2)", "Rome (according to passage 1)"),
        *("Rome [1], and [2]", "Rome (Passage 1, and Passage 2)", "Rome [1, and 2]"),
    ],
)
def test_citation_marks_are_removed_with_their_separators(reply: str) -> None:
    assert short_answer(reply, lambda number: number <= 2) == "Rome"


@pytest.mark.parametrize(
    "reply",
    [
        "Rome, as stated in [1]",
        "Rome (2)",
        "Rome [3]",
        "Rome (II)",
        "Rome [citation:3]",
        "Rome (from 1 to 2)",
        "Rome [Passage 1, Passage 3]",
        "Apollo 1 and 2",
    ],
)
def test_what_is_no_mark_of_a_shown_passage_stays(reply: str) -> None:
    assert short_answer(reply, lambda number: number <= 2) == reply
