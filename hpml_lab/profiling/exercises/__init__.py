"""The judges of notebook 10's exercises, one a file. They read no clock: devices, loops and their times are given."""
