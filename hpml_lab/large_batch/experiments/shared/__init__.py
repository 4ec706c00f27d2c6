"""What several experiments use: one net trained from many seeds at once, and gains seed by seed."""
