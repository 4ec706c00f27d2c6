"""The notebook's controls: a layer's weights to quantize by hand."""
