"""Compute boards: ranked systems, differences, tables and their notes."""
