"""One file for each experiment of notebook 07."""
