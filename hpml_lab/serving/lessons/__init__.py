"""To be read: Poisson traffic and latencies, a queue on a virtual clock, a server of threads and queues, and LitServe's API."""
