"""The README of a model that CLaRa trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from methods.clara.config import ClaraConfig
from methods.clara.training_config import ClaraTrainingConfig, Stage, StepOptions

_CARD = """---
library_name: peft
base_model: {base}
pipeline_tag: text-generation
tags:
- peft
- lora
- retrieval-augmented-generation
- context-compression
---

# {title}

Base: `{base}`{revision}, which is frozen and not part of this folder. Training data of this stage: {data}. Seed {seed}.

CLaRa compresses a document of at most {length} tokens into {memory} vectors, the last states of {memory} learnt memory
tokens behind it. Questions become vectors of the same shape; the {k} nearest documents stand as vectors in the
generator's prompt, and it answers from them.

| adapter | |
|---|---|
| `compressor` | documents to memory vectors |
| `reasoner` | questions to vectors that are compared with those |
| `generator` | answers from memory vectors |

Each adapter is an ordinary PEFT folder for the base:

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("{base}")
generator = PeftModel.from_pretrained(base, "path/to/this/folder/generator")
```

`memory.safetensors` has the embeddings of the memory tokens (`memory`, one row each) and of the two marks that a
document begins with and a memory ends with (`marks`). All of it together:

```python
from pathlib import Path

from methods.clara.model import Clara
from methods.clara.prompting import answer

clara = Clara.load(Path("path/to/this/folder"))
memory = clara.encode(["The old bridge was built by a painter."]).memory
print(clara.generate([answer("Who built the old bridge?", 1)], [memory[0]], max_new_tokens=32)[0].text)
```

| | |
|---|---|
{rows}

`curve.jsonl` tells of every step the losses, the learning rate and the gradient's norm, and of validations what they
came to.
"""

_TITLES: Mapping[Stage, str] = {
    "scp": "A compressor pretrained with CLaRa",
    "instruction": "A compressor tuned with CLaRa to answer questions",
    "supervised": "A compressor with a supervised retriever",
    "joint": "Retrieval and generation trained together with CLaRa",
}


def write_card(folder: Path, config: ClaraTrainingConfig, stage: Stage, figures: Mapping[str, float]) -> None:
    """Write the card; it holds nothing that changes between equal trainings.

    Args:
        folder: Of the checkpoint.
        config: Of the training.
        stage: Which the checkpoint is of.
        figures: What it came to.
    """
    model: ClaraConfig = config.model
    facts: dict[str, object] = {
        "compression": f"{model.rate} tokens of a full document to one vector",
        "adapters": f"rank {model.lora.r}, alpha {model.lora.alpha:g}, dropout {model.lora.dropout:g}",
        "temperature of the selector": f"{model.tau:g}",
        "learning rate": f"{_steps(config, stage).learning_rate:g}",
        "rows per step": _steps(config, stage).batch_size,
        **{name: f"{value:.6g}" for name, value in figures.items()},
    }
    text = _CARD.format(
        title=_TITLES[stage],
        base=model.base,
        revision=f" at {model.revision}" if model.revision else "",
        data=", ".join(f"`{one}`" for one in config.references(stage)),
        seed=config.seed,
        length=model.max_length,
        memory=model.memory_tokens,
        k=model.k,
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )
    (folder / "README.md").write_text(text, "utf-8")


def _steps(config: ClaraTrainingConfig, stage: Stage) -> StepOptions:
    options: StepOptions = getattr(config, stage).train
    return options
