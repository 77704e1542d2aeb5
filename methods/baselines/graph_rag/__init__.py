"""Systems that retrieve by a graph of the text, or by a memory of it: one file a system.

`common` is what they share: options, how a corpus is read once, which passages a question may use, both contexts.
`hipporag`: PageRank from the names or facts of the question. `lightrag`: keywords to entities and relations. `graphrag`:
entities and reports about communities; its global search answers from the reports alone. `drift`: GraphRAG's search by
follow-up questions. `memorag`: clues from a memory of the whole text. `linear_rag`: PageRank without any model. `raptor`: a
tree of summaries.
"""
