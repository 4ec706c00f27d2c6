"""The exercises of notebook 10, one module each."""

from hpml_lab.tuning.exercises import choose_checkpoints, fused_bytes, largest_batch, wasted_biases  # noqa: F401
