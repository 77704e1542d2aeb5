"""What a board shows: ranked systems, differences, tables and their notes."""
