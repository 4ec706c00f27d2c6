"""The notebook's slider through a forward and a backward pass, and what happens at each step."""
