"""The experiments of notebook 14, one module or folder each."""
