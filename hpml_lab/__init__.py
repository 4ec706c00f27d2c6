"""hpml-lab: the package behind the workbook on high-performance machine learning.

`core` is the ground: devices, timing, results, exercises. Each topic is one folder that bears its notebook's name.
"""

__version__ = "0.1.0"
