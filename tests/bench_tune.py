"""What the tuner chooses on the planted cases, and how near that comes to the best of a grid: `make bench`."""

from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.workers import sleep_until
from hpml_lab.loading.planted_cases import CASES
from hpml_lab.loading.tune import _options, _Trials, tune

EPOCHS, BATCH = 5, 16


def main():
    for name, (dataset, seconds, _) in CASES.items():
        start = CLOCK()
        tuned = tune(dataset, BATCH, step_seconds=seconds, epochs=EPOCHS)
        took = CLOCK() - start
        run = _Trials(dataset, BATCH, lambda _, s=seconds: sleep_until(CLOCK() + s), 20.0, {}, CLOCK() + 600)
        grid = [{"num_workers": 0}, *(_options(workers, ahead, EPOCHS) for workers in (1, 2, 4, 8) for ahead in (2, 4))]
        epochs = {tuple(one.items()): run.trial(one).epoch(tuned.batches, EPOCHS) for one in grid}
        default, best = epochs[("num_workers", 0),], min(epochs.values())
        chosen = run.trial(tuned.options).epoch(tuned.batches, EPOCHS)
        print(f"{name}: {tuned}")
        print(
            f"    epoch: default {default:.3f} s, tuned {chosen:.3f} s, best of a grid {best:.3f} s; tuning took {took:.1f} s"
        )


if __name__ == "__main__":
    main()
