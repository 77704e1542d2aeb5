"""Knowledge graphs of documents: extracted from chunks, searched from the entities of an answer, cut to neighborhoods.

In the order of the work: `chunking` → `extraction` by a model (without one `synthetic` reads worlds, `noun_phrases` any
text) → `knowledge_graph` → `neighborhood` (where the search begins, the cuts) by `pagerank` → `augmented_queries`, which keeps
each result in a folder and takes up what lies there. `picture` draws a neighborhood. `triples`: graphs that datasets
bring, as text and united. `index` is a graph with the vectors and matrices that graph RAG searches, `communities` divides it.
"""
