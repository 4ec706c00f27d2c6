"""The optimizer lab: its settings and paths, its picture, one step in full, its controls, and checks of it."""
