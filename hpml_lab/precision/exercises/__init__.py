"""The exercises of notebook 11, one module each."""

from hpml_lab.precision.exercises import clip_with_scaler, loss_scaler, lost_updates, master_weights  # noqa: F401
