"""The exercises of notebook 04, one module each."""
