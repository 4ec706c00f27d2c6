"""The exercises of notebook 08, one file each. No check sleeps, starts a worker or looks at a clock."""

from hpml_lab.loading.exercises import block_sampler, find_the_bottleneck, flip_together, predict_speed_up, seed_the_workers  # noqa: F401 - each import registers its exercise
