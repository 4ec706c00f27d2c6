"""For your own loaders: the tuner, a deadline for each batch, an epoch's parts, and data sets of known cost."""
