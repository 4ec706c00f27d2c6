"""Our disk benchmark and fio on the same file, in turns, by queue depth: `make bench`."""

from statistics import median

from hpml_lab.storage.experiments.disk_iops import fio
from hpml_lab.storage.tools.disk_benchmark import DiskJob, run_job
from hpml_lab.storage.tools.uncached_file import KIB, MIB, disk_file

SECONDS, PAIRS = 1.0, 5


def main():
    print(f"fio: {fio.version()}")
    with disk_file(size=256 * MIB) as file:
        print(f"test file of 256 MiB on {file.label}")
        for action in ("read", "write"):
            for depth in (1, 4, 16, 32):
                job = DiskJob("random", action, 4 * KIB, depth)
                pairs = [(run_job(file, job, SECONDS).iops, fio.run(file, [job], SECONDS)[0].iops) for _ in range(PAIRS)]
                ours, theirs = (median(rates) for rates in zip(*pairs, strict=True))
                ratio = median(a / b for a, b in pairs)
                print(f"{job.mode}, 4 KiB, depth {depth:2}: ours {ours:8.0f} IOPS, fio {theirs:8.0f}, ours / fio {ratio:.2f}")


if __name__ == "__main__":
    main()
