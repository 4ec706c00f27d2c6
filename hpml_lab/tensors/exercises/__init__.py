"""The exercises of notebook 01, one module each."""
