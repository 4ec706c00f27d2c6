"""Room of notebook 01: what a tensor is, and what the machine under it can do."""
