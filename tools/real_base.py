"""`python -m tools.real_base FOLDER`: a small language model with a real vocabulary, for the experiment `clara/real`.

An ordinary Llama of about seven million parameters over MiniLM's 30,522 word pieces. It is trained on the rows from which the
experiment trains (documents, then their questions and answers), never on the rows by which it is measured. RAGMETER_DATA must
hold clara/.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from methods.clara.rows import ScpRow
from methods.models.weights import MINILM, locate
from tools.tiny_lm.initial import fresh_model

ROWS = 80
"""Rows that are trained on; `clara/real` measures by the later ones."""
LENGTH, BATCH, RATE = 256, 4, 1e-3


def tokenizer() -> Any:
    """Return MiniLM's tokenizer in the form that causal models need: without special tokens around a text."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    pieces = Tokenizer.from_file(str(Path(locate(MINILM)) / "tokenizer.json"))
    pieces.no_truncation()
    pieces.no_padding()
    pieces.post_processor = None
    return PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="[CLS]", eos_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]")


def texts(rows: Sequence[ScpRow]) -> list[str]:
    """Format each row as one text: its document, then every question with its answer."""
    return [
        "\n".join([row.document, *(f"{question} {answer}" for question, answer in zip(row.questions, row.answers, strict=True))])
        for row in rows
    ]


def train(folder: Path, rows: Sequence[ScpRow], steps: int, seed: int) -> float:
    """Train the model and write it to a folder; return the loss of the last step."""
    import torch

    tokens = tokenizer()
    stream = [token for text in texts(rows) for token in [tokens.bos_token_id, *tokens(text)["input_ids"], tokens.eos_token_id]]
    model = fresh_model(len(tokens), tokens.pad_token_id, tokens.bos_token_id, tokens.eos_token_id, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    draws, data, loss = torch.Generator().manual_seed(seed), torch.tensor(stream), torch.zeros(())
    length = min(LENGTH, len(stream) - 1)
    model.train()
    for _ in range(steps):
        starts = torch.randint(len(stream) - length, (BATCH,), generator=draws)
        batch = torch.stack([data[start : start + length] for start in starts.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return float(loss.detach())


def main(argv: Sequence[str] | None = None) -> None:
    """Train and write the model."""
    from methods.clara.data import scp_rows

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    value = parser.parse_args(argv)
    rows = scp_rows("clara_stages/pretraining:train", options={"first": ROWS})
    print(f"loss {train(value.folder, rows, value.steps, value.seed):.2f}")


if __name__ == "__main__":
    main()
