"""What survives compression: documents told again from their memory, to be compared with the documents.

For a question's documents `ragmeter explain clara --set retell=true` shows it; as a table it is the experiment
`clara/table17`: dataset `retold`, and `clara_reader` with `task: paraphrase`.

Source: paper, table 17; one document at a time, the longest reply 128 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.draws import Draws
from methods.clara.prompting import PARAPHRASES, paraphrase

MAX_NEW_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Retold:
    """A document and what was told of it.

    Attributes:
        document: The text that was compressed.
        text: The text written from its memory alone.
        wording: Number of the instruction.
    """

    document: str
    text: str
    wording: int


def retell(
    clara: Any, documents: Sequence[str], *, seed: int = 0, max_new_tokens: int = MAX_NEW_TOKENS, batch_size: int = 16
) -> list[Retold]:
    """Tell documents in other words from their memory.

    Args:
        clara: A `Clara`.
        documents: Texts.
        seed: Decides the wording of each document's instruction; it does not depend on the documents beside it.
        max_new_tokens: Longest reply; what is longer than that cannot be told in full.
        batch_size: Replies written at once.
    """
    import torch

    if not documents:
        return []
    wordings = [Draws("clara fidelity", seed, document).below(PARAPHRASES) for document in documents]
    with torch.inference_mode():
        memory = clara.encode(documents).memory
    prompts = [paraphrase(wording) for wording in wordings]
    written = clara.generate(prompts, memory.unsqueeze(1), max_new_tokens, batch_size)
    return [Retold(document, reply.text, wording) for document, reply, wording in zip(documents, written, wordings, strict=True)]
