"""To be read."""
