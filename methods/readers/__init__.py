"""Readers: from a question and its context to an answer. `extractive` needs no language model, `chat` asks an
endpoint, `causal` a local model, `retrieval_only` answers nothing."""
