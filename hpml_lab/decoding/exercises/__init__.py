"""The exercises of notebook 22, one module each."""
