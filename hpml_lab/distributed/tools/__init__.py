"""The training of a transformer on thousands of GPUs, by the alpha-beta model."""
