"""GPR: a retriever of triples that is pretrained on the graph itself (paper: GPR, section 3)."""
