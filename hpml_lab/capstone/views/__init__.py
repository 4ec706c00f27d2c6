"""Slices through a scan, and a slider through the volume."""
