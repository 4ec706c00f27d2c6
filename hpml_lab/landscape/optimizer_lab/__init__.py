"""The optimizer lab: its settings and paths in Python, and the page that draws it, by the same rules in JavaScript."""
