"""Methods against benchmarks: its lines, cells, picture and exports, for board, report and embeddable JSON."""
