"""Which words memory stands for: its vectors through the base's output layer (logit lens).

Memory is made of states behind the final norm, so the output layer reads it as it is; a second norm would be wrong.

Source: paper, table 1 and the case study of section 3; nostalgebraist 2020.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from methods.clara.config import Adapter

TOP = 50
"""Tokens of each memory vector; paper 50."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Topics:
    """What a text's memory stands for.

    Attributes:
        positions: For each memory token its words, best first.
    """

    positions: tuple[tuple[str, ...], ...]

    @property
    def union(self) -> tuple[str, ...]:
        """All words, each once, in the order of positions."""
        return tuple(dict.fromkeys(word for words in self.positions for word in words))

    def found(self, question: str, documents: Iterable[str]) -> tuple[str, ...]:
        """Words of the documents that the question does not have: what the reasoner adds to it (table 1)."""
        asked, told = _spelt([question]), _spelt(documents)
        return tuple(word for word in self.union if word.casefold() in told - asked)


def topics(clara: Any, texts: Sequence[str], adapter: Adapter = "reasoner", top: int = TOP) -> list[Topics]:
    """The words that the memory of texts stands for.

    Args:
        clara: A `Clara`.
        texts: Questions (reasoner), or documents (compressor).
        adapter: What reads them.
        top: Tokens looked at for each vector, before those that are no words are left out.
    """
    import torch

    with torch.inference_mode():
        memory = clara.encode(texts, adapter).memory
        head = clara.base.get_output_embeddings()
        logits = head(memory.to(head.weight.dtype))
        # Tokens that were added, and rows that only pad the vocabulary, are no words of the base.
        known = min(logits.shape[-1], clara.tokens.first)
        ids = logits[..., :known].float().topk(min(top, known), dim=-1).indices.tolist()
    return [Topics(tuple(_words(clara.tokenizer, position) for position in text)) for text in ids]


def _spelt(texts: Iterable[str]) -> set[str]:
    """The whole words of texts: a piece of one says nothing."""
    return {word for text in texts for word in _WORD.findall(text.casefold())}


def _words(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Tokens as words: without special tokens, blanks, punctuation, and pieces of one character."""
    special = set(tokenizer.all_special_ids)
    texts = (tokenizer.decode([one]).strip() for one in ids if one not in special)
    return tuple(dict.fromkeys(text for text in texts if len(text) > 1 and _WORD.search(text) and "\ufffd" not in text))
