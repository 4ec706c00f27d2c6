"""To be read: weights cut by columns and rows, a loss cut by words, attention on a ring, experts on ranks, and all axes as a mesh."""
