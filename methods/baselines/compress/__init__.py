"""Context compressors, one file a system: into vectors that `memory_reader` answers from, or into less text.

`soft.py`: what a system of vectors says of itself; `memory.py`: the compressor that it becomes; `model.py`: its tensors, and how
prompts and texts become pieces; `reader.py`: answers; `rows.py`: what is learned from; `training.py`: losses and stages, and how a
system is registered; `convert.py`: checkpoints as their authors publish them.
"""
