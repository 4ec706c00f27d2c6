"""What several experiments measure on a path, and the maps that they draw."""
