"""The capstone: a whole workload made fast (notebook 16).

Experiments, in the order of the notebook:
    nodule_detector         a 3-D network is trained to find nodules: FROC over seeds, nodules by size, patients
Further figures:
    slices                  a scan cut by three planes, with mask, patches, nodules and detections
    explore_scan            a slider through the volume
    found_nodules           slices of a test patient with mask, patches, boxes and truth
Tools:
    Scan, synthetic         a CT scan with what turns it into HU and mm; a synthetic patient with known nodules
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
    luna16_folder           where LUNA16 is, for readers who have it
    hounsfield, resample, lung_mask, normalize, cut_patches
                            the stages before the network, fast; lung_mask is closing of the lungs, and voxel_size the mm after
                            resample
    apply_network, decode, merge
                            the stages from patches to detections
    prepare, detect         all stages before the network, and all after them
    trained_detector        a trained network, from results/ after the first time
    scored, recall_interval FROC of detections, and an interval over patients; wilson is that of a share
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "ct": ["Scan", "synthetic"],
        "ct_pictures": ["slices"],
        "volume_slider": ["explore_scan"],
        "experiments.nodule_detector": ["nodule_detector"],
        "nodule_pictures": ["found_nodules"],
        "scans": ["find_scans", "load", "save"],
        "luna16": ["luna16_folder"],
        "stages": [
            "hounsfield",
            "resample",
            "voxel_size",
            "lung_mask",
            "lungs",
            "closing",
            "normalize",
            "cut_patches",
            "apply_network",
            "decode",
            "merge",
        ],
        "prepared": ["prepare", "detect"],
        "detector": ["trained_detector"],
        "froc": ["scored", "recall_interval", "wilson"],
    },
)
