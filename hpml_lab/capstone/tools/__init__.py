"""For the reader's own scans: reading and writing them, the pipeline with its switches, and a folder of patients."""
