"""The experiments of notebook 20, a folder each."""
