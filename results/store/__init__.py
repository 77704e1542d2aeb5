"""Where runs are stored: the database, writing and reading it, and what is known about each run."""
