"""What both experiments of notebook 20 use."""
