"""The exercises of notebook 13, one module each. No check starts a process or looks at a clock."""
