"""The exercises of notebook 19, one module each."""
