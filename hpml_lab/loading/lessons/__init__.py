"""To be read: samplers and seeds, two prefetchers, how long an epoch should take, and batches fetched whole."""
