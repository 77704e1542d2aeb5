"""The regression gate: decisions, their history, and reports about them."""
