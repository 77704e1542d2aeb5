"""Knowledge graphs of documents: extracted from chunks, searched from the entities of an answer, cut to neighborhoods.

In the order of the work: `chunking` → `extraction` by a model (`synthetic` reads worlds without one) →
`knowledge_graph` → `neighborhood` (where the search begins, the cuts) by `pagerank` → `augmented_queries`, which keeps
each result in a folder and takes up what lies there. `picture` draws a neighborhood. `triples`: graphs that datasets
bring, as text and united.
"""
