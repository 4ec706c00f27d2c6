"""The judges of notebook 02's exercises, one file each."""
