"""The judges of notebook 09's exercises, one a file. They read no clock: devices, loops and their times are given."""
