"""What the notebook lets you play with."""
