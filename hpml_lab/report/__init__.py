"""One HTML page of what was run: your figures next to the lecture's and the reference's. The file is all it needs.

write_report  write the page from a folder of results
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.report.page import write_report as write_report
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
