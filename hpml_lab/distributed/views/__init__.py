"""The notebook's steppers, sliders and pictures: the ring, collectives, scaling."""
