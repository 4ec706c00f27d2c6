"""The exercises of notebook 20, one module each."""
