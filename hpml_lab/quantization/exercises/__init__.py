"""The exercises of notebook 16, one module each."""
