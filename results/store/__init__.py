"""Store runs: the database, reading and writing it, and facts derived from stored runs."""
