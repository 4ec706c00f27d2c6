"""The capstone: a whole workload made fast (notebook 16).

Experiments, in the order of the notebook:
    lung_nodule_pipeline    from CT scans to nodules: one measured change at a time, detections unchanged
Further figures of their results:
    stages_before_and_after, use_before_and_after    who did what when, and what the machine did (lung_nodule_pipeline)
Further figures:
    slices                  a scan cut by three planes, with mask, patches, nodules and detections
    explore_scan            a slider through the volume
Tools:
    Scan, synthetic         a CT scan with what turns it into HU and mm; a synthetic patient with known nodules
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
    luna16_folder           where LUNA16 is, for readers who have it
    LungPipeline            from scans to detections; PipelineSwitches has one switch for each change, FAST those that pay
    run_folder              a folder of patients: results are kept, errors name file and stage, a further run resumes
    run_on_ranks            the same on N ranks
    trained_detector        a detector trained on synthetic patients
For the notebook:
    PARTS                   the parts of the pipeline, in order
    sequential_time, overlapped_time, time_per_item    seconds of a chain of stages, one after the other and overlapped
    most_by_stage, workers_that_balance, schedule      what a stage can gain, workers it needs, and who does what when
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.lung_nodule_pipeline": ["lung_nodule_pipeline"],
        "lung_pictures": ["stages_before_and_after", "use_before_and_after"],
        "lung_pipeline": ["LungPipeline", "PipelineSwitches", "FAST", "PARTS"],
        "batch_run": ["run_folder", "run_on_ranks"],
        "detector": ["trained_detector"],
        "overlap_arithmetic": ["sequential_time", "overlapped_time", "time_per_item", "most_by_stage"]
        + ["workers_that_balance", "schedule"],
        "ct": ["Scan", "synthetic"],
        "ct_pictures": ["slices"],
        "volume_slider": ["explore_scan"],
        "scans": ["find_scans", "load", "save"],
        "luna16": ["luna16_folder"],
    },
)
