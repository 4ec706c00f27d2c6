"""The exercises of notebook 16, one module each; affine_mistakes belongs to quantize_affine."""
