"""For the reader's own code: the largest batch that fits, the kernels that a compiler generates, kernels for GPU and CPU."""
