"""The pocket model: a small shipped causal language model, trained from scratch on generated worlds, and its prompt format.

`weights/` is an ordinary `transformers` folder; `tools/tiny_lm` trains and measures it.

The one prompt format that the model knows:

    <s>[1] title: text            passages, each followed by an empty line; none for a question without passages

    [2] title: text

    Question: Who penned the song?
    Answer: Velmar Dosk</s>       or `Answer: unanswerable</s>`

After the passages the same model also writes a question for an answer (`Answer: …` first, `Question:` last), and
without passages another wording of a question (`Question: …`, then `Paraphrase:`). A prompt ends with the colon;
what is written begins with a space and ends with the end-of-sequence token.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.schema import Passage


def pocket_path() -> Path:
    """Return the folder with the model's weights, configuration, tokenizer and card."""
    return Path(__file__).parent / "weights"


BOS, EOS, PAD = "<s>", "</s>", "<pad>"
QUESTION, ANSWER, PARAPHRASE = "Question:", "Answer:", "Paraphrase:"
UNANSWERABLE = "unanswerable"
"""Answer of the model if the passages do not answer the question."""
GAP = "\n\n"
"""Text after each passage."""
MARKERS = tuple(f"[{number}]" for number in range(1, 33))
"""Passage markers that are a single token; higher numbers take three tokens."""


def marker(number: int) -> str:
    """Return the marker of passage number `number`, counted from 1, such as `[1]`."""
    return f"[{number}]"


def entry(passage: Passage) -> str:
    """Format a passage on one line as `title: text`, with white space collapsed."""
    title = f"{' '.join(passage.title.split())}: " if passage.title else ""
    return f" {title}{' '.join(passage.text.split())}"


def document(text: str) -> str:
    """Format a text whose first line is the title, like `entry`."""
    title, _, body = text.partition("\n")
    return entry(Passage("", title, body) if body.strip() else Passage("", "", text))


def numbered(blocks: Sequence[str]) -> str:
    """Join blocks (passages, or their placeholders) as numbered text; "" for none."""
    return "".join(f"{marker(number)}{block}{GAP}" for number, block in enumerate(blocks, start=1))


def context(passages: Sequence[Passage]) -> str:
    """Format passages as the numbered context of a question; "" for none."""
    return numbered([entry(item) for item in passages])


def asking(question: str) -> str:
    """Return the end of a prompt that asks a question."""
    return f"{QUESTION} {question}\n{ANSWER}"


def answer_prompt(question: str, passages: Sequence[Passage] = ()) -> str:
    """Return the prompt for answering a question from passages, without the beginning-of-sequence token."""
    return context(passages) + asking(question)


def question_prompt(answer: str, passages: Sequence[Passage]) -> str:
    """Return the prompt for generating a question with this answer from passages."""
    return f"{context(passages)}{ANSWER} {answer}\n{QUESTION}"


def paraphrase_prompt(question: str) -> str:
    """Return the prompt for paraphrasing a question."""
    return f"{QUESTION} {question}\n{PARAPHRASE}"
