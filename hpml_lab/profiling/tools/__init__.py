"""A stopwatch for parts of a loop, traces as lanes of a picture, a simulated device."""
