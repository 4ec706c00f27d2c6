"""The exercises of notebook 18, one module each."""
