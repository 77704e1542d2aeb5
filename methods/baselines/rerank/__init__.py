"""Rerankers that are language models, one file a system.

`strategies.py`: in which order what is compared; `replies.py`: what a reply says; `prompts.py`: what a model is shown;
`asking.py`: a system made of the three. `pairs.py`: systems that score each passage by itself.
"""
