"""The experiments of notebook 09, one a file."""
