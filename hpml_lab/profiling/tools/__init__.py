"""A stopwatch for parts of a loop, traces and logs as tables, counters of the system, a GPU's time line, a simulated device."""
