"""Maps that several figures of this topic draw: convergence rates over α and γ."""

import numpy as np

from hpml_lab.core.show import style
from hpml_lab.landscape import StabilityMap, largest_stable_rate


def map_arrays(found: StabilityMap, every: int) -> dict:
    """A stability map for a figure, thinned to one in `every` cells in both directions."""
    momenta = found.momentum[:, 0].tolist()[::every]
    return {
        "lr": (found.lr[0] * found.largest).tolist()[::every],
        "momentum": momenta,
        "measured": found.measured[::every, ::every].clamp(0, 1.5).tolist(),
        "theory": found.theory[::every, ::every].clamp(0, 1.5).tolist(),
        "boundary": [largest_stable_rate(found.kind, momentum, 1.0) for momentum in momenta],
    }


def rate_map(ax, arrays: dict, which: str, title: str):
    """A map of convergence rates over (α λmax, γ), `which` of "measured" and "theory", with the theoretical boundary."""
    rates = np.array(arrays[which], dtype=float)
    image = ax.pcolormesh(arrays["lr"], arrays["momentum"], rates, vmin=0.65, vmax=1.05, rasterized=True)
    ax.plot(arrays["boundary"], arrays["momentum"], color=style.RED, linewidth=2, label="boundary in theory")
    ax.set(xlim=(0, max(arrays["lr"])), xlabel="learning rate × λmax", ylabel="momentum γ", title=title)
    ax.legend(fontsize=8, loc="upper left", labelcolor=style.DARK)
    ax.grid(False)
    return image
