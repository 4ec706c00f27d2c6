"""Loading: where a batch's time goes, how to hide it, and what a disk and a decoder give (notebook 08).

Experiments, in the order of the notebook:
    face_landmarks    a Dataset over a CSV and an image folder, with transforms that move image and landmarks together
    samplers          what each sampler draws, and what the workers' seeds do to random numbers
    prefetch          load the next batches while the current one is computed on
    num_workers       how many workers, the lecture's formula, and the bound
    pinned_memory     how fast a batch gets to the GPU
    gpu_prefetcher    the next batch copied to the GPU during the current step
    io_vs_compute     what overlap or a faster accelerator can gain
    tune_loader       whether any setting of a grid beats the tuner's choice
    disk_iops         requests a second and bandwidth of a disk
    dali              the same photographs by PIL, torchvision and DALI
Further figures of their results:
    lengths_in_batches, rare_class_share    of samplers
    prefetch_gain                           of prefetch
    core_bound_workers, cheap_images        of num_workers
    disk_against_fio, disk_page_cache       of disk_iops
    decoded_pictures                        of dali

For your own loaders:
    tune              the fastest num_workers, prefetch_factor, pin_memory and persistent_workers, by short trials
    with_deadline     an epoch of a DataLoader whose faults are reported in time
    ThreadPrefetcher, DevicePrefetcher    batches loaded ahead by threads, and copied ahead to a GPU
    Ring              a queue of arrays in shared memory between two processes
    run_epoch         where an epoch's time goes; stamped_loader divides the wait further, Fetch does it for threads
    simulate, lower_bound, expected_time, lecture_time    how long an epoch should take
    overlap           seconds in which two lists of spans are under way at once
    allow_oversubscription    more workers than cores, without the warnings
    LengthBuckets     a sampler that puts samples of similar length into one batch; padding is what a batch wastes
    disk_file, run_job, DiskJob    a disk benchmark: the test file, and one job on it

Data sets and parts that the notebook builds on:
    FaceLandmarksDataset, write_faces, NAMES, PAIRS    faces with landmarks: reader, generator, names, left-right pairs
    Indices, imbalanced, make_sampler                  samples that are their index; a rare class; a sampler by its name
    draw_numbers, repeats, seed_own                    random numbers that workers draw
    StorageModel, Clips, make_clips, clips_on_disk     clips behind slow storage
    CheapImages, BatchedImages, ready_made             images in memory, one by one and in whole batches
    Accelerator                                        a step that only waits, as a processor does for a GPU
    KnownCost, FaultyData                              samples of known cost, and samples that go wrong
    PictureStore, SlowPictures, augment, decode, stage_times    the exercise on a slow stage
    make_photographs, pil_image, tensor_image, resized          photographs and their decoders
    box_scene, move_together, bright_extent                     boxes that have to move with the image
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
        "experiments.tune_loader": ["tune_loader"],
        "experiments.disk_iops": ["disk_iops", "disk_against_fio", "disk_page_cache"],
        "experiments.dali": ["dali", "decoded_pictures"],
        "tuner": ["tune"],
        "deadline": ["with_deadline"],
        "prefetchers": ["ThreadPrefetcher", "DevicePrefetcher"],
        "hpml_lab.core.ring": ["Ring"],
        "hpml_lab.core.timeline": ["overlap"],
        "hpml_lab.core.workers": ["allow_oversubscription"],
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
        "hpml_lab.data.lengths": ["LengthBuckets", "padding"],
        "sampling": ["Indices", "draw_numbers", "imbalanced", "make_sampler", "repeats", "seed_own"],
        "cheap_epochs": ["cheap_images"],
        "computed_epochs": ["core_bound_workers"],
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
