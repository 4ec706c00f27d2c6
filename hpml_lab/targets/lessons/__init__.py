"""To be read: mixture densities, bins as a density, one-hot rows, and the inverse problem whose exact answer is known."""
