"""Loading: where a batch's time goes, how to hide it, and what a disk and a decoder give (notebook 08).

Experiments, in the order of the notebook:
    face_landmarks    a Dataset over a CSV and an image folder, with transforms that move image and landmarks together
    samplers          what each sampler draws, and what the workers' seeds do to random numbers
    prefetch          load the next batches while the current one is computed on
    num_workers       how many workers, the lecture's formula, and the bound
    pinned_memory     how fast a batch gets to the GPU
    gpu_prefetcher    the next batch copied to the GPU during the current step
    io_vs_compute     what overlap or a faster accelerator can gain
    disk_iops         requests a second and bandwidth of a disk
    dali              the same photographs by PIL, torchvision and DALI
For your own loaders:
    tune              the fastest num_workers, prefetch_factor, pin_memory and persistent_workers, by short trials
    with_deadline     an epoch of a DataLoader whose faults are reported in time
    ThreadPrefetcher, DevicePrefetcher    batches loaded ahead by threads, and copied ahead to a GPU
    Ring              a queue of tensors in shared memory between two processes
    run_epoch         where an epoch's time goes; stamped_loader divides it further
    simulate, lower_bound, expected_time, lecture_time    how long an epoch should take
    LengthBuckets     a sampler that puts samples of similar length into one batch
The rest are data sets, pictures of results and parts that the notebook uses.
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.face_landmarks": ["face_landmarks"],
        "experiments.samplers": ["samplers", "lengths_in_batches", "rare_class_share"],
        "experiments.prefetch": ["prefetch", "prefetch_gain"],
        "experiments.num_workers": ["num_workers"],
        "experiments.pinned_memory": ["pinned_memory"],
        "experiments.gpu_prefetcher": ["gpu_prefetcher"],
        "experiments.io_vs_compute": ["io_vs_compute"],
        "experiments.disk_iops": ["disk_iops", "disk_against_fio", "disk_page_cache"],
        "experiments.dali": ["dali", "decoded_pictures"],
        "tuner": ["tune"],
        "deadline": ["with_deadline"],
        "prefetchers": ["ThreadPrefetcher", "DevicePrefetcher"],
        "hpml_lab.core.ring": ["Ring"],
        "pipeline": [
            "run_epoch",
            "stamped_loader",
            "simulate",
            "lower_bound",
            "expected_time",
            "lecture_time",
            "Accelerator",
            "Fetch",
        ],
        "sampling": [
            "LengthBuckets",
            "Indices",
            "draw_numbers",
            "imbalanced",
            "make_sampler",
            "padding",
            "repeats",
            "seed_own",
        ],
        "cheap_epochs": ["cheap_images"],
        "storage": ["StorageModel", "Clips", "CheapImages", "BatchedImages", "clips_on_disk", "make_clips", "ready_made"],
        "landmarks": ["FaceLandmarksDataset"],
        "faces": ["write_faces", "NAMES", "PAIRS"],
        "known_datasets": ["KnownCost", "FaultyData"],
        "picture_store": ["PictureStore", "SlowPictures", "augment", "decode", "stage_times"],
        "uncached_file": ["disk_file"],
        "disk_benchmark": ["DiskJob", "run_job"],
        "photographs": ["make_photographs"],
        "decoders": ["pil_image", "tensor_image", "resized"],
        "boxes": ["box_scene", "move_together", "bright_extent"],
    },
)
