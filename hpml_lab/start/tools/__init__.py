"""The doctor: what this machine is, what each notebook can show on it, and how to fix the rest."""
