"""CLaRa's adapters for the pocket model, which the package carries: `model: clara-pocket`.

`weights/` is a checkpoint of the experiment `clara/worlds-long`, its numbers in half precision; `ship.py` made it so.
"""
