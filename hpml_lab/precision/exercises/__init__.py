"""The exercises of notebook 12, one module each."""
