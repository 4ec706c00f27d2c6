"""The sliders and steppers of notebook 22."""
