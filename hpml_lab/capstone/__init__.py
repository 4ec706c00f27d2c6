"""The capstone: a whole workload made fast (notebook 16).

Tools:
    Scan, synthetic         a CT scan with what turns it into HU and mm; a synthetic patient with known nodules
    find_scans, load, save  scans in files: the workbook's own, DICOM series, and LUNA16
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, {"ct": ["Scan", "synthetic"], "scans": ["find_scans", "load", "save"]})
