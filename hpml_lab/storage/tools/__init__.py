"""For your own disk: the benchmark and its test file."""
