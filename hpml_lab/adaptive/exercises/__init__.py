"""The exercises of notebook 05, one per module; importing this package registers them."""

from hpml_lab.adaptive.exercises import (  # noqa: F401
    adagrad_distance,
    first_steps,
    fix_the_rmsprop,
    write_adagrad,
    write_adam,
    write_adamw,
)
