"""The exercises of notebook 15, one module each."""
