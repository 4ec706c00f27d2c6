"""To be read: a decoder with its cache, what decoding costs, a scheduler of many requests, speculation, sums in a fixed order."""
