"""The experiments of notebook 22, one module or folder each."""
