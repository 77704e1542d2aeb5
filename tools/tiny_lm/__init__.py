"""Trains the tiny language model that ships (reader `pocket`, 2.7 M parameters)."""
