"""The checks of notebook 03's exercises, one per module."""
