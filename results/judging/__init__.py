"""Stored judgments: calls, battles, human labels and judge cards."""
