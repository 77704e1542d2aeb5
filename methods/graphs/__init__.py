"""Knowledge graphs of documents: extracted from chunks, searched from the entities of an answer, cut to neighbourhoods.

In the order of the work: `chunking` → `extraction` (`tuples` is what a model writes, `worlds` reads worlds without a
model) → `graph` with `similarity` edges → `seeds` → `pagerank` → `subgraph` → `augmented` queries. `keeping` leaves
each result in a folder and takes up what lies there; `picture` draws a neighbourhood.

Graphs that datasets bring: `linearise` writes a triple as text, `pretraining` unites the graphs that retrievers of
triples are pretrained on.
"""
