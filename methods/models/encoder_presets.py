"""Read the presets of encoders.

A preset is a set of options of `encoder.EncoderConfig`: `{id: dense, config: {preset: bge-large-en-v1.5}}` in an experiment,
`EncoderConfig.preset("bge-large-en-v1.5")` in code.
"""

from __future__ import annotations

from pathlib import Path

from methods.presets import read_presets

PRESETS = read_presets(Path(__file__).with_name("encoders.yaml"))
