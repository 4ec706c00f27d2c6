"""The capstone: a whole workload made fast (notebook 16).

Further figures:
    slices                  a scan cut by three planes, with mask, patches, nodules and detections
    explore_scan            a slider through the volume
Tools:
    Scan, synthetic         a CT scan with what turns it into HU and mm; a synthetic patient with known nodules
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
    luna16_folder           where LUNA16 is, for readers who have it
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "ct": ["Scan", "synthetic"],
        "ct_pictures": ["slices"],
        "volume_slider": ["explore_scan"],
        "scans": ["find_scans", "load", "save"],
        "luna16": ["luna16_folder"],
    },
)
