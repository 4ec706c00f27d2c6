"""The experiment of notebook 00."""
