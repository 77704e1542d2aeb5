"""Complete systems that decide themselves when to search, each written as a program per question (`methods/program.py`)."""
