"""Model parallelism: ranks that divide layers, sequences and experts (notebook 23)."""
