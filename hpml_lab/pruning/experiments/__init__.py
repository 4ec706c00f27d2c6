"""The experiments of notebook 17, one folder each."""
