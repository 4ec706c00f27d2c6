"""The experiments of notebook 20."""
