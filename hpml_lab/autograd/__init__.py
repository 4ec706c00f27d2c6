"""Room of notebook 02: reverse-mode automatic differentiation, written by hand and compared with torch's."""
