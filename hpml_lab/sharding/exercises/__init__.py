"""The exercises of notebook 14, one module each. No check starts a process or looks at a clock."""
