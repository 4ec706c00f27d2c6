"""To be read: what workers do, threads at exit, a fork while a lock is held, and what a queue sends."""
