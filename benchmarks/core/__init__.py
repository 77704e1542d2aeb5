"""Utilities that every package may import: errors, YAML with line numbers, fingerprints, atomic writes, registries, stable
draws.
"""
