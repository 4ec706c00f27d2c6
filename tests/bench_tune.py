"""What the tuner chooses for data sets of known cost, and how near that is to the best of a grid: `make bench`."""

from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.workers import sleep_until
from hpml_lab.loading.known_datasets import CASES
from hpml_lab.loading.trials import Trials
from hpml_lab.loading.tuner import loader_options, tune

EPOCHS, BATCH = 5, 16


def main():
    for name, (dataset, seconds, _) in CASES.items():
        start = CLOCK()
        tuned = tune(dataset, BATCH, step_seconds=seconds, epochs=EPOCHS)
        took = CLOCK() - start
        run = Trials(dataset, BATCH, lambda _, s=seconds: sleep_until(CLOCK() + s), 20.0, {}, CLOCK() + 600)
        grid = [{"num_workers": 0}, *(loader_options(workers, ahead, EPOCHS) for workers in (1, 2, 4, 8) for ahead in (2, 4))]
        epochs = {tuple(options.items()): run.trial(options).epoch(tuned.batches, EPOCHS) for options in grid}
        default, best = epochs[("num_workers", 0),], min(epochs.values())
        chosen = run.trial(tuned.options).epoch(tuned.batches, EPOCHS)
        print(f"{name}: {tuned!r}")
        print(
            f"    epoch: default {default:.3f} s, tuned {chosen:.3f} s, best of a grid {best:.3f} s; tuning took {took:.1f} s"
        )


if __name__ == "__main__":
    main()
