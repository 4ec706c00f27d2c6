"""The experiments of notebook 08, in its order. They stand in four files: what is loaded, what overlaps, disks, decoders."""

# Each import registers its experiments.
from hpml_lab.loading.experiments_data import face_landmarks, samplers  # isort: skip
from hpml_lab.loading.experiments_overlap import gpu_prefetcher, io_vs_compute, num_workers, pinned_memory, prefetch  # isort: skip
from hpml_lab.loading.experiments_disk import disk_iops  # isort: skip
from hpml_lab.loading.experiments_dali import dali  # isort: skip

__all__ = [
    "face_landmarks",
    "samplers",
    "prefetch",
    "num_workers",
    "pinned_memory",
    "gpu_prefetcher",
    "io_vs_compute",
    "disk_iops",
    "dali",
]
