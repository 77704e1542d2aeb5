"""Rerankers with language models, one file per system.

`strategies.py`: the sequence of comparisons; `replies.py`: parsing of replies; `prompts.py`: conversations for the model;
`asking.py`: systems composed of these three. `pairs.py`: systems that score each passage separately.
"""
