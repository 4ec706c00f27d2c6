"""The capstone: a whole workload made fast (notebook 19).

Experiments, in the order of the notebook:
    lung_nodule_pipeline  from CT scans to nodules: one measured change at a time, detections unchanged
    nodule_detector       a 3-D network is trained to find nodules: FROC over seeds, nodules by size, patients
Further figures:
    augmented_patches     a nodule's patch and its label, after each kind of augmentation
    slices, explore_scan  a scan cut by three planes, with mask, nodules and detections; a slider through the volume
    found_nodules         a test patient cut through a false positive, with truth and detections (nodule_detector)
    stages_before_and_after, use_before_and_after  who did what when, and what the machine did (lung_nodule_pipeline)
Scans:
    synthetic             a synthetic patient with known nodules: a CT scan with what turns it into HU and mm
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
    luna16_folder         where LUNA16 is, for readers who have it
The pipeline:
    hounsfield, resample, voxel_size, lungs, lung_mask, normalize, cut_patches  the stages before the network
    trained_detector      a trained network, from results/ after the first time
    LungPipeline          from scans to detections; PipelineSwitches has one switch for each change, FAST those that pay
    PARTS                 its parts, in order
    run_folder, run_on_ranks  a folder of patients, also on N ranks: results are kept, errors name file and stage, reruns resume
    sequential_time, overlapped_time, time_per_item  seconds of a chain of stages, one after the other and overlapped
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.capstone.tools.ct import synthetic as synthetic
    from hpml_lab.capstone.views.scan_slices import slices as slices, augmented_patches as augmented_patches
    from hpml_lab.capstone.views.volume_slider import explore_scan as explore_scan
    from hpml_lab.capstone.tools.scans import find_scans as find_scans, load as load, save as save
    from hpml_lab.capstone.tools.luna16 import luna16_folder as luna16_folder
    from hpml_lab.capstone.lessons.stages import (
        hounsfield as hounsfield,
        resample as resample,
        voxel_size as voxel_size,
        lungs as lungs,
        lung_mask as lung_mask,
        normalize as normalize,
        cut_patches as cut_patches,
    )
    from hpml_lab.capstone.lessons.detector import trained_detector as trained_detector
    from hpml_lab.capstone.tools.lung_pipeline import (
        LungPipeline as LungPipeline,
        PipelineSwitches as PipelineSwitches,
        FAST as FAST,
        PARTS as PARTS,
    )
    from hpml_lab.capstone.experiments.lung_nodule_pipeline import lung_nodule_pipeline as lung_nodule_pipeline
    from hpml_lab.capstone.experiments.lung_nodule_pipeline.figure import (
        stages_before_and_after as stages_before_and_after,
        use_before_and_after as use_before_and_after,
    )
    from hpml_lab.capstone.experiments.nodule_detector import nodule_detector as nodule_detector
    from hpml_lab.capstone.experiments.nodule_detector.figure import found_nodules as found_nodules
    from hpml_lab.capstone.lessons.overlap_arithmetic import (
        sequential_time as sequential_time,
        overlapped_time as overlapped_time,
        time_per_item as time_per_item,
    )
    from hpml_lab.capstone.tools.folder_run import run_folder as run_folder, run_on_ranks as run_on_ranks
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
