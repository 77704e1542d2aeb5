"""The models that methods and judges are on: `encoder.py` (texts to vectors), `chat.py` (endpoints), `causal.py`
(local language models). `weights.py` finds a model's folder and hashes what is in it; `pocket/` ships."""
