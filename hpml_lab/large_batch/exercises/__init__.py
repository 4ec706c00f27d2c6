"""The exercises of notebook 13, one module each."""
