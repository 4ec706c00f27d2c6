"""The ladder of the slow trainer: what each change gains over the rung below, taken in turns in one run: `make bench`."""

import tempfile
from pathlib import Path

from hpml_lab.core.system.device import choose_device
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.data import load
from hpml_lab.profiling.experiments.profile_loop.trainer_ladder import LadderPlan, TrainerLadder
from hpml_lab.profiling.lessons.slow_and_fast import write_folder
from hpml_lab.profiling.lessons.slow_trainer import TrainerSwitches


@one_thread()
def main():
    plan = LadderPlan(iterations=40, profiled=40, batch=64, look=20, turns=5)
    with tempfile.TemporaryDirectory() as folder:
        ladder = TrainerLadder(write_folder(Path(folder), load("digits"), 640, 100), choose_device(), plan, compile=False)
        best = None
        for rung in ladder.climb(TrainerSwitches()):
            name = rung.change.switch if rung.change else "slow"
            largest = f"largest part {rung.largest} {100 * rung.share(rung.largest):.0f} %"
            print(
                f"{name:17} {rung.seconds * 1e3:7.2f} ms an iteration, {rung.gain or 'the bottom'}, off by"
                f" {rung.difference:.1e} of {rung.bound:g}, {'kept' if rung.kept else 'taken back'}; {largest}"
            )
            best = rung if rung.kept else best
        print(f"slow trainer / best trainer: {ladder.total(best)}")


if __name__ == "__main__":
    main()
