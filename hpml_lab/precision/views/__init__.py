"""Two functions next to each other, for the notebook."""
