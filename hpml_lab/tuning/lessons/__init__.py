"""To be read: convolutions by other ways, fused kernels in Triton, what to compute again, and the run with all switches."""
