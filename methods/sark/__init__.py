"""SARK: a reranker that learns what helps to answer, whatever the style it is told in (paper: SARK, section 4)."""
