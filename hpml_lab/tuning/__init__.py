"""The room of notebook 10: the tuning guide, one switch at a time."""
