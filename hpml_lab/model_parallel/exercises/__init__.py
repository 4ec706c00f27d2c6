"""The exercises of notebook 23, one module each. No check starts a process: its ranks take turns in this one."""
