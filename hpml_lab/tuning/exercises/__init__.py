"""The exercises of notebook 11, one module each."""
