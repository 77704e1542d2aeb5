"""Where data comes from: the hub, local files, and how their records are read."""
