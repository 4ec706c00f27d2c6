"""The exercises of notebook 08, one module each. No check sleeps, starts a worker or looks at a clock."""
