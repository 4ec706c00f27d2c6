"""The notebook's slider, and how a conditional density is drawn as an image."""
