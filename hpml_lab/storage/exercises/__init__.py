"""The exercises of notebook 09, one module each. No check sleeps or looks at a clock."""
