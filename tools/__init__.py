"""Tools of the project itself, outside the wheel."""
