"""For the reader's own code: which operator runs in which dtype."""
