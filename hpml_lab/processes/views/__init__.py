"""Timelines below each other."""
