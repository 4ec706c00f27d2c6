"""To be read: a decoder with its cache, its cost, many requests in one batch, speculation, and sums in a fixed order."""
