"""How fast each way loads photographs, as ratios to PIL without workers, taken in turns in one run: `make bench`.

DALI's rows appear where it is installed: .venv/bin/uv pip install -e '.[dali]'.
"""

import tempfile
from statistics import median
from types import SimpleNamespace

from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.workers import allow_oversubscription, shutdown_workers
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.storage.experiments.dali import photographs
from hpml_lab.storage.experiments.dali.photographs import make_photographs

ROUNDS = 7


def main():
    size = SimpleNamespace(device=choose_device(), images=256, batch=32, side=224, workers=(0, 1, 2), threads=(1, 2))
    with tempfile.TemporaryDirectory() as folder, one_thread(), allow_oversubscription():
        ways = photographs.loading_ways(size, make_photographs(f"{folder}/photographs", size.images))
        seconds = {way: [] for way in ways}
        try:
            for _ in range(ROUNDS):
                for way, batches in ways.items():
                    photographs.epoch_to_device(batches, size.device.torch)  # starts the workers, and takes what DALI has ready
                    seconds[way].append(photographs.epoch_to_device(batches, size.device.torch))
        finally:
            for batches in ways.values():
                shutdown_workers(getattr(batches, "_iterator", None))
    base = seconds[photographs.PIL, "0 workers"]
    for (name, workers), times in seconds.items():
        ratio = median(a / b for a, b in zip(base, times, strict=True))
        print(f"{name:36} {workers:10} {size.images / median(times):7.0f} photographs/s, {ratio:5.2f} of PIL without workers")


if __name__ == "__main__":
    main()
