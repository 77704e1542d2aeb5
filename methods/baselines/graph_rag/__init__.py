"""Graph RAG systems, one file each: retrieval with a graph, tree or memory built from the corpus.

`common` has shared code: options, indexing, candidates of a question, and contexts. `hipporag`: PageRank from the names or
facts of the question. `lightrag`: keywords to entities and relations. `graphrag`: entities and community reports; global search
answers only from the reports. `drift`: GraphRAG's search with follow-up questions. `memorag`: clues from a memory of the whole
text. `linear_rag`: PageRank without a language model. `raptor`: a tree of summaries.
"""
