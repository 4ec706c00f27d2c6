"""The notebook's slider."""
