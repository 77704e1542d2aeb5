"""The commands' bodies, one file per kind of work; the files of `ragmeter/cli` name them."""
