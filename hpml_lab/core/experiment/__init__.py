"""The shape of every experiment: its registry, its result with claims and typed rows, how it is saved and shown."""
