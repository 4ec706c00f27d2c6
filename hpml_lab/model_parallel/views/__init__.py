"""The sliders of notebook 23."""
