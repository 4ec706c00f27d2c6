"""How long the optimizer lab's kernel side takes from a slider's event to the new PNG: `make bench`.

The goal is 20 ms at the 95th percentile with all panels. In turns in the same run: drawing everything anew.
"""

from statistics import median, quantiles

from hpml_lab.adaptive.views.lab.checks import slider_seconds
from hpml_lab.adaptive.views.lab.widget import draw_lab, lab
from hpml_lab.core.measure.timing import measure
from hpml_lab.core.show import style

MOVES, ROUNDS = 60, 5
OPTIMIZERS = {
    "three optimizers": ["gradient_descent", "momentum", "adam"],
    "six optimizers": ["gradient_descent", "momentum", "nesterov", "adagrad", "rmsprop", "adam"],
}


def main():
    for label, names in OPTIMIZERS.items():
        shown = lab("rosenbrock", names)
        slider_seconds(shown, 8)  # first draws
        seconds, anew = [], []
        for _ in range(ROUNDS):
            seconds += slider_seconds(shown, MOVES)
            anew.append(measure(lambda names=names: style.png(draw_lab("rosenbrock", names)), samples=2).seconds)
        print(
            f"{label:17} {1e3 * median(seconds):6.1f} ms median, {1e3 * quantiles(seconds, n=20)[-1]:6.1f} ms p95, "
            f"over {len(seconds)} moves; drawn anew {1e3 * median(anew):6.0f} ms, {median(anew) / median(seconds):.0f} times"
        )


if __name__ == "__main__":
    main()
