"""The exercises of notebook 23, one module each."""
