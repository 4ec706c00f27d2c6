"""The exercises of notebook 16, one module each; affine_mistakes and pruned_nets belong to the one that imports them."""
