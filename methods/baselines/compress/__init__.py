"""Context compressors, one file per system: into vectors, from which `memory_reader` answers, or into shorter text.

Soft compressors: `soft.py` is their interface, `memory.py` the compressor role, `model.py` the model with prompts and encoding,
`reader.py` the reader role, `rows.py` training rows, `training.py` losses, stages and registration, `convert.py` the conversion
of published checkpoints.
"""
