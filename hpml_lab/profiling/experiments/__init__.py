"""The experiments of notebook 10, one a file."""
