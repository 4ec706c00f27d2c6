"""The experiments of notebook 01, one a file."""
