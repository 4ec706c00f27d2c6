"""To be read: weights cut by columns and rows, a loss cut by words, a ring, experts on ranks, and a mesh of three axes."""
