"""Encoder–decoder models: results do not depend on batches, decoders start as configured, log-likelihoods equal a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.models.decoding import Sampling
from methods.models.likelihood import LikelihoodScorer, ScoredText, ScoringConfig, ScoringRequest, ScoringTemplate
from methods.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from tests.support.errors import raises

TEXT = (
    "Which passage answers the question? Passage A: Lily saw a big red ball in the park. Passage B: Tom was happy and "
    "played all day. The answer is yes or no."
)
PROMPTS = [TEXT[:n] for n in (9, 30, 61, 90, 140, 147)]


@pytest.fixture(scope="module", params=["T5", pytest.param("Bart", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a model with random weights and a tokenizer trained here, which ends texts with an end token like T5's."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    raw.train_from_iterator([TEXT] * 4, trainer)
    raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    torch.manual_seed(4)
    if request.param == "T5":
        shape: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        shape |= {"feed_forward_proj": "gated-gelu", "initializer_factor": 1.5, "decoder_start_token_id": 0}
        model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **shape))
    else:
        shape = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
        shape |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "init_std": 0.4}
        shape |= {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 1}
        shape |= {"max_position_embeddings": 128, "forced_eos_token_id": None}
        model = BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **shape))
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def load(folder: str, **config: Any) -> Seq2SeqModel:
    return Seq2SeqModel(Seq2SeqConfig(model=folder, **config), "cpu")


def last_logits(loaded: Seq2SeqModel, prompt: str, written: list[int]) -> Any:
    """Return the logits of the next token for one prompt, without cache."""
    import torch

    ids = loaded.tokenizer(prompt, return_tensors="pt")["input_ids"]
    prepared = torch.tensor([[loaded.model.config.decoder_start_token_id, *written]])
    with torch.inference_mode():
        return loaded.model(input_ids=ids, decoder_input_ids=prepared, use_cache=False).logits[0, -1]


def greedy(loaded: Seq2SeqModel, prompt: str, start: str, count: int) -> str:
    forced = loaded.tokenizer(start, add_special_tokens=False)["input_ids"] if start else []
    written: list[int] = []
    while len(written) < count and 1 not in written:
        written.append(int(last_logits(loaded, prompt, forced + written).argmax()))
    return loaded.tokenizer.decode(written, skip_special_tokens=True)


@pytest.mark.slow
def test_batches_of_any_size_generate_the_output_of_a_token_by_token_loop(folder: str) -> None:
    expected = [greedy(load(folder), prompt, "", 10) for prompt in PROMPTS]
    assert len(set(expected)) > 1
    for size in (1, 4, 6):
        written = load(folder, batch_size=size, max_new_tokens=10).generate(PROMPTS)
        assert [generation.text for generation in written] == expected


@pytest.mark.slow
def test_the_decoder_starts_as_configured(folder: str) -> None:
    loaded = load(folder, batch_size=3, max_new_tokens=8)
    starts = ["Passage", "", "Passage A", "yes", "The answer is", "Passage"]
    written = loaded.generate(PROMPTS, starts=starts)
    expected = [greedy(loaded, prompt, start, 8) for prompt, start in zip(PROMPTS, starts, strict=True)]
    assert [generation.text for generation in written] == expected


@pytest.mark.slow
def test_samples_depend_only_on_their_seed(folder: str) -> None:
    sampling = Sampling(seed=3)
    item = [g.text for g in load(folder, batch_size=6, max_new_tokens=8).generate(PROMPTS, sampling=sampling)]
    two = [g.text for g in load(folder, batch_size=2, max_new_tokens=8).generate(PROMPTS, sampling=sampling)]
    other = load(folder, max_new_tokens=8).generate(PROMPTS, sampling=sampling, seeds=range(6))
    assert item == two
    assert [g.text for g in other] != item


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"share_prefixes": False}, {"token_budget": 1}, {"token_budget": 150}])
def test_log_likelihoods_equal_a_loop_over_single_tokens(folder: str, mode: dict[str, Any]) -> None:
    loaded = load(folder)
    targets = ["yes", "no", "Lily saw a big red ball", "Passage B: Tom"]
    queries = [ScoredText(prompt, target) for prompt in PROMPTS for target in targets[: 1 + len(prompt) % 4]]
    scores = LikelihoodScorer(loaded, ScoringConfig(**mode)).score(queries)
    for pair, score in zip(queries, scores, strict=True):
        target = loaded.tokenizer(pair.target, add_special_tokens=False)["input_ids"]
        assert score.tokens == tuple(target)
        assert loaded.text_encoder.decode(score.tokens) == pair.target
        values = [float(last_logits(loaded, pair.prompt, target[:n]).log_softmax(-1)[token]) for n, token in enumerate(target)]
        np.testing.assert_allclose(score.logprobs, values, atol=1e-4)
        assert score.mean == pytest.approx(np.mean(values), abs=1e-4)


def test_prompts_are_encoded_once_for_all_their_targets(folder: str) -> None:
    loaded = load(folder)
    rows: list[int] = []
    hook = loaded.model.get_encoder().register_forward_pre_hook(
        lambda _, inputs, named: rows.append(len(named["input_ids"])), with_kwargs=True
    )
    scores = LikelihoodScorer(loaded).score([ScoredText(prompt, label) for prompt in PROMPTS for label in ("yes", "no", "Passage A")])
    hook.remove()
    assert sum(rows) == len(PROMPTS)
    assert len(scores) == 3 * len(PROMPTS)


def test_long_chunk_is_truncated_and_the_prompt_around_it_is_kept(folder: str) -> None:
    loaded = load(folder, max_prompt_tokens=60)
    scorer = LikelihoodScorer(loaded)
    template = ScoringTemplate("The answer is in $chunk Which passage? $q")
    prompt, span = template.filled("Tom was happy and played all day. " * 20, {"q": "yes or no"}, loaded)
    ((ids, _),) = scorer.encode([ScoredText(prompt, "yes", span)])
    text = loaded.tokenizer.decode(list(ids), skip_special_tokens=True)
    assert len(ids) == 60
    assert ids[-1] == 1
    assert text.startswith("The answer is in Tom was happy")
    assert text.endswith("Which passage? yes or no")
    assert len(scorer.grid(["Tom. " * 200], [ScoringRequest({"q": "no"}, "yes")], template)) == 1
    with pytest.raises(ValueError, match="1 to 60 fit"):
        loaded.generate([prompt])


def test_causal_model_is_refused(tiny_llama: str) -> None:
    with raises("load-failed"):
        load(tiny_llama)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with raises("no-model-folder"):
        load(str(tmp_path / "none"))
