"""Models used by methods and judges: `encoder.py` (texts to vectors), `chat.py` (endpoints), `causal.py` (local language
models). `weights.py` locates and hashes model files; `pocket/` is a small shipped model.
"""
