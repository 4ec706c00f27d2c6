"""To be read: a sweep of learning rates, two entrants compared seed by seed, word vectors with a sparse gradient."""
