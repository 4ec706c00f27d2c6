"""Loading: where a batch's time goes, and how to hide it (notebook 08).

Experiments, in the order of the notebook:
    face_landmarks    a Dataset over a CSV and an image folder, with transforms that move image and landmarks together
    samplers          what each sampler draws, and what the workers' seeds do to random numbers
    prefetch          load the next batches while the current one is computed on
    num_workers       how many workers, the lecture's formula, and the bound
    pinned_memory     how fast a batch gets to the GPU
    gpu_prefetcher    the next batch copied to the GPU during the current step
    tune_loader       whether any setting of a grid beats the tuner's choice
    exact_resume      a run that is killed in mid-epoch, and the ways to go on with exactly the samples that are left
Further figures of their results:
    lengths_in_batches                  of samplers
    prefetch_gain                       of prefetch
    core_bound_workers, cheap_images    of num_workers

For your own loaders:
    tune              the fastest num_workers, prefetch_factor, pin_memory and persistent_workers, by short trials
    with_deadline     an epoch of a DataLoader whose faults are reported in time
    ThreadPrefetcher, DevicePrefetcher    batches loaded ahead by threads, and copied ahead to a GPU
    run_epoch         where an epoch's time goes; stamped_loader divides the wait further, Fetch does it for threads
    simulate, lower_bound, lecture_time    how long an epoch should take
    overlap           seconds in which two lists of spans are under way at the same time
    LengthBuckets     a sampler that puts samples of similar length into one batch; padding is what a batch wastes

Data sets and parts that the notebook builds on:
    FaceLandmarksDataset, write_faces, NAMES, PAIRS    faces with landmarks: reader, generator, names, left-right pairs
    Indices, imbalanced                       samples that are their index; a rare class
    draw_numbers, seed_own                    random numbers that workers draw
    StorageModel, clips_on_disk               clips behind slow storage
    CheapImages, BatchedImages, ready_made    images in memory, one by one and in whole batches
    Accelerator                               a step that only waits, as a processor does for a GPU
    KnownCost, FaultyData                     samples of known cost, and samples that go wrong
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.loading.experiments.face_landmarks import face_landmarks as face_landmarks
    from hpml_lab.loading.experiments.samplers import samplers as samplers, lengths_in_batches as lengths_in_batches
    from hpml_lab.loading.experiments.prefetch import prefetch as prefetch, prefetch_gain as prefetch_gain
    from hpml_lab.loading.experiments.num_workers import num_workers as num_workers
    from hpml_lab.loading.experiments.num_workers.cheap_epochs import cheap_images as cheap_images
    from hpml_lab.loading.experiments.num_workers.computed_epochs import core_bound_workers as core_bound_workers
    from hpml_lab.loading.experiments.pinned_memory import pinned_memory as pinned_memory
    from hpml_lab.loading.experiments.gpu_prefetcher import gpu_prefetcher as gpu_prefetcher
    from hpml_lab.loading.experiments.tune_loader import tune_loader as tune_loader
    from hpml_lab.loading.experiments.exact_resume import exact_resume as exact_resume
    from hpml_lab.loading.tools.tuner import tune as tune
    from hpml_lab.loading.tools.deadline import with_deadline as with_deadline
    from hpml_lab.loading.lessons.prefetchers import ThreadPrefetcher as ThreadPrefetcher, DevicePrefetcher as DevicePrefetcher
    from hpml_lab.core.timing.timeline import overlap as overlap
    from hpml_lab.loading.lessons.epoch_bounds import (
        simulate as simulate,
        lower_bound as lower_bound,
        lecture_time as lecture_time,
    )
    from hpml_lab.loading.tools.epochs import (
        run_epoch as run_epoch,
        stamped_loader as stamped_loader,
        Accelerator as Accelerator,
        Fetch as Fetch,
    )
    from hpml_lab.loading.lessons.landmarks import FaceLandmarksDataset as FaceLandmarksDataset
    from hpml_lab.loading.experiments.face_landmarks.faces import write_faces as write_faces, NAMES as NAMES, PAIRS as PAIRS
    from hpml_lab.data.lengths import LengthBuckets as LengthBuckets, padding as padding
    from hpml_lab.loading.lessons.sampling import (
        Indices as Indices,
        draw_numbers as draw_numbers,
        imbalanced as imbalanced,
        seed_own as seed_own,
    )
    from hpml_lab.loading.experiments.slow_clips import StorageModel as StorageModel, clips_on_disk as clips_on_disk
    from hpml_lab.loading.lessons.whole_batches import (
        CheapImages as CheapImages,
        BatchedImages as BatchedImages,
        ready_made as ready_made,
    )
    from hpml_lab.loading.tools.known_datasets import KnownCost as KnownCost, FaultyData as FaultyData
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
