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
    lengths_in_batches                      of samplers
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
    overlap           seconds in which two lists of spans are under way at the same time
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
    training_pipeline, DaliBatches                              DALI's pipeline for them, on the CPU or decoding on a GPU
    box_scene, move_together, bright_extent                     boxes that have to move with the image
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.loading.experiments.face_landmarks import face_landmarks as face_landmarks
    from hpml_lab.loading.experiments.samplers import samplers as samplers, lengths_in_batches as lengths_in_batches
    from hpml_lab.loading.experiments.prefetch import prefetch as prefetch, prefetch_gain as prefetch_gain
    from hpml_lab.loading.experiments.num_workers import num_workers as num_workers
    from hpml_lab.loading.experiments.pinned_memory import pinned_memory as pinned_memory
    from hpml_lab.loading.experiments.gpu_prefetcher import gpu_prefetcher as gpu_prefetcher
    from hpml_lab.loading.experiments.io_vs_compute import io_vs_compute as io_vs_compute
    from hpml_lab.loading.experiments.tune_loader import tune_loader as tune_loader
    from hpml_lab.loading.experiments.disk_iops import (
        disk_iops as disk_iops,
        disk_against_fio as disk_against_fio,
        disk_page_cache as disk_page_cache,
    )
    from hpml_lab.loading.experiments.dali import dali as dali, decoded_pictures as decoded_pictures
    from hpml_lab.loading.tuner import tune as tune
    from hpml_lab.loading.deadline import with_deadline as with_deadline
    from hpml_lab.loading.prefetchers import ThreadPrefetcher as ThreadPrefetcher, DevicePrefetcher as DevicePrefetcher
    from hpml_lab.core.system.ring import Ring as Ring
    from hpml_lab.core.measure.timeline import overlap as overlap
    from hpml_lab.core.system.workers import allow_oversubscription as allow_oversubscription
    from hpml_lab.loading.pipeline import (
        run_epoch as run_epoch,
        stamped_loader as stamped_loader,
        simulate as simulate,
        lower_bound as lower_bound,
        expected_time as expected_time,
        lecture_time as lecture_time,
        Accelerator as Accelerator,
        Fetch as Fetch,
    )
    from hpml_lab.data.lengths import LengthBuckets as LengthBuckets, padding as padding
    from hpml_lab.loading.sampling import (
        Indices as Indices,
        draw_numbers as draw_numbers,
        imbalanced as imbalanced,
        make_sampler as make_sampler,
        repeats as repeats,
        seed_own as seed_own,
    )
    from hpml_lab.loading.cheap_epochs import cheap_images as cheap_images
    from hpml_lab.loading.computed_epochs import core_bound_workers as core_bound_workers
    from hpml_lab.loading.storage import (
        StorageModel as StorageModel,
        Clips as Clips,
        CheapImages as CheapImages,
        BatchedImages as BatchedImages,
        clips_on_disk as clips_on_disk,
        make_clips as make_clips,
        ready_made as ready_made,
    )
    from hpml_lab.loading.landmarks import FaceLandmarksDataset as FaceLandmarksDataset
    from hpml_lab.loading.faces import write_faces as write_faces, NAMES as NAMES, PAIRS as PAIRS
    from hpml_lab.loading.known_datasets import KnownCost as KnownCost, FaultyData as FaultyData
    from hpml_lab.loading.picture_store import (
        PictureStore as PictureStore,
        SlowPictures as SlowPictures,
        augment as augment,
        decode as decode,
        stage_times as stage_times,
    )
    from hpml_lab.loading.uncached_file import disk_file as disk_file
    from hpml_lab.loading.disk_benchmark import DiskJob as DiskJob, run_job as run_job
    from hpml_lab.loading.photographs import make_photographs as make_photographs
    from hpml_lab.loading.decoders import pil_image as pil_image, tensor_image as tensor_image, resized as resized
    from hpml_lab.loading.dali_pipelines import training_pipeline as training_pipeline, DaliBatches as DaliBatches
    from hpml_lab.loading.boxes import box_scene as box_scene, move_together as move_together, bright_extent as bright_extent
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
