"""Pictures of the notebook: the answers of one net over the square, and accuracy by epoch."""
