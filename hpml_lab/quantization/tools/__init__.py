"""For your own models: quantize them, list which layers changed, and count bytes and bits."""
