"""The experiments of notebook 02, one file each."""
