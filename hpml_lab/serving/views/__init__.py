"""The sliders of the queue, and the closing page of the course."""
