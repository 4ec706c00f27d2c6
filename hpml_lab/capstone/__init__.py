"""The capstone (notebook 16).

take_home   ten habits, the experiment that shows each, the reader's own figure and the recorded one
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, {"habits": ["take_home"]})
