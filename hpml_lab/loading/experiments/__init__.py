"""The experiments of notebook 08, one file each."""
