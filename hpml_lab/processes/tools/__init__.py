"""The shared memory of the system, as it is while it is in use."""
