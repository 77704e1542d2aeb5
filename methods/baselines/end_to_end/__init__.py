"""Systems that answer by themselves, each a program of one question; `program.py` is what they are written with."""
