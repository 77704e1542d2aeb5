"""What every package may import: errors, YAML with lines, fingerprints, files written whole, registries, stable draws."""
