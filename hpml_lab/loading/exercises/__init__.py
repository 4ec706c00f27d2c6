"""The exercises of notebook 08, one file each. No check sleeps, starts a worker or looks at a clock."""
