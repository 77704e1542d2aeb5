"""Find multiple-choice tables whose gold answers are letters or numbers of choices that no method would see."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.core.errors import UserError
from benchmarks.own.fields import Fields
from benchmarks.own.questions import ParsedQuestion

_LETTER = re.compile(r"\(?([A-Ja-j])[).]?")
_LISTED = re.compile(r"(?:^|\s)\(?([A-J])[).:]\s")
_LIST = re.compile(r"(?:answer_)?(?:choices|options|alternatives|endings|mc\d?_targets)", re.IGNORECASE)
_ONE = re.compile(r"(?:(?:choice|option|answer|opt)[ _]?)?[a-j]|(?:choice|option|opt|ending|sol)[ _]?\d", re.IGNORECASE)


def choice_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that usually contain choices: a list of them, or at least two with one choice each."""
    single = [name for name in names if _ONE.fullmatch(name)]
    return [name for name in names if _LIST.fullmatch(name)] + (single if len(single) > 1 else [])


def check_choices(fields: Fields, questions: Sequence[ParsedQuestion], where: str) -> str | None:
    """Check that answers which name a choice come with the choices.

    Args:
        fields: The field mapping.
        questions: The questions.
        where: Name of the file, for messages.

    Returns:
        A note if the user named the field of the answers; None if nothing is missing.

    Raises:
        UserError: The field was guessed, its values are letters or numbers of choices, and the questions do not list the choices.
    """
    answered = [question for question in questions if question.answers]
    columns = choice_columns(fields.ignored)
    answers = {answer.strip() for question in answered for answer in question.answers}
    letters = bool(answers) and all(map(_LETTER.fullmatch, answers)) and (len(answers) > 1 or bool(columns))
    numbers = bool(answers) and bool(columns) and all(answer.isdecimal() and len(answer) == 1 for answer in answers)
    if not (letters or numbers) or 2 * sum(map(_lists_choices, answered)) > len(answered):
        return None
    column = " + ".join(fields.paths["answers"])
    kind = "letters" if letters else "numbers"
    missing = f"the choices in {', '.join(columns)} are not read" if columns else "no column has the choices"
    problem = f"the answers in {column} are {kind} of choices ({', '.join(sorted(answers)[:4])}), and {missing}"
    if "answers" not in fields.guessed:
        return problem
    raise UserError(
        problem,
        code="choices-missing",
        where=where,
        try_this=f"append the choices to the text of each question; or, if {kind} are the answers, name the field: "
        f"fields: {{answers: {column}}}",
    )


def _lists_choices(question: ParsedQuestion) -> bool:
    texts = (question.text, *(text for _, text, _ in question.passages))
    return any(len(set(_LISTED.findall(text))) > 1 for text in texts)
