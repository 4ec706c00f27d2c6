"""The exercises of notebook 10, one module each."""
