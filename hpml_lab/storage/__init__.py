"""Storage: what a file, a decoder and a disk cost a batch (notebook 09).

Experiments, in the order of the notebook:
    io_vs_compute     what overlap or a faster accelerator can gain
    disk_iops         requests a second and bandwidth of a disk
    input_pipelines   AlexNet's, ResNet-50's and SSD's steps from a file to a picture, and the workers that a GPU needs
    dali              the same photographs by PIL, torchvision and DALI
Further figures of their results:
    disk_against_fio, disk_page_cache    of disk_iops
    decoded_pictures                     of dali

For your own disk:
    disk_file, run_job, DiskJob    a disk benchmark: the test file, and one job on it

Data sets and parts that the notebook builds on:
    PictureStore, SlowPictures, augment, decode, stage_times    the exercise on a slow stage
    alexnet, resnet, ssd                                        {step: function}: three input pipelines
    make_photographs, pil_image, tensor_image, resized          photographs and their decoders
    training_pipeline, DaliBatches                              DALI's pipeline for them, on the CPU or decoding on a GPU
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.storage.experiments.io_vs_compute import io_vs_compute as io_vs_compute
    from hpml_lab.storage.experiments.disk_iops import (
        disk_iops as disk_iops,
        disk_against_fio as disk_against_fio,
        disk_page_cache as disk_page_cache,
    )
    from hpml_lab.storage.experiments.input_pipelines import input_pipelines as input_pipelines
    from hpml_lab.storage.experiments.dali import dali as dali, decoded_pictures as decoded_pictures
    from hpml_lab.storage.tools.uncached_file import disk_file as disk_file
    from hpml_lab.storage.tools.disk_benchmark import DiskJob as DiskJob, run_job as run_job
    from hpml_lab.storage.lessons.slow_pictures import (
        PictureStore as PictureStore,
        SlowPictures as SlowPictures,
        augment as augment,
        decode as decode,
    )
    from hpml_lab.storage.views.stage_bars import stage_times as stage_times
    from hpml_lab.storage.experiments.dali.photographs import make_photographs as make_photographs
    from hpml_lab.storage.lessons.decoders import pil_image as pil_image, tensor_image as tensor_image, resized as resized
    from hpml_lab.storage.lessons.dali_pipelines import training_pipeline as training_pipeline, DaliBatches as DaliBatches
    from hpml_lab.storage.lessons.three_pipelines import alexnet as alexnet, resnet as resnet, ssd as ssd
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
