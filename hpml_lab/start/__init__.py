"""Room of notebook 00: what this machine is and what the workbook can show on it."""
