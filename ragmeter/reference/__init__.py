"""The reference pages of the documentation, written from the registries and the option classes themselves.

`pages.pages()` gives every page as Markdown; `docs/_site/hook.py` puts them into the site when it is built.
"""
