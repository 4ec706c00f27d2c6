"""What notebook 10 shows: a slow trainer and its fast form, programs to profile, clocks of a step, and what bounds a loop."""
