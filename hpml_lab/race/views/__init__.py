"""Figures of the race on three nets."""
