"""Knowledge graphs of documents: extract them from chunks, and find the neighborhood of an answer's entities.

In order of use: `chunking` → `extraction` by a language model (or, without one, `synthetic` for worlds and `noun_phrases` for
any text) → `knowledge_graph` → `neighborhood` (seed entities and cuts, by `pagerank`) → `augmented_queries`, which saves every
step in a folder and resumes from it. `picture` draws a neighborhood. `triples` converts datasets' own graphs to text and merges
them. `index` adds the vectors and matrices that graph RAG searches; `communities` partitions a graph.
"""
