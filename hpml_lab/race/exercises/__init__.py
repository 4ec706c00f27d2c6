"""The exercises of notebook 06, one per file."""
