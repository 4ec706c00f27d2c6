"""The shape of every experiment: what is imported to write one, in one line.

    experiment            the decorator that registers a function as an experiment, with its two sizes
    Params                what the function is given: size, device and that size's parameters
    Result                what it returns
    Table, Row, column    its tables of typed rows, and a field of a row that is shown
    Claim, KeyFigure      what a Result's `claim`, `measured`, `check` and `key_figure` add to it
    Fits                  how full size is made to fit into a GPU's memory

Behind it: the registry, how a result is saved (`result_json`, `results_folder`) and how it is shown (`render`).
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.core.experiment.registry import experiment as experiment, Params as Params
    from hpml_lab.core.experiment.result import Result as Result
    from hpml_lab.core.experiment.findings import (
        Table as Table,
        Row as Row,
        column as column,
        Claim as Claim,
        KeyFigure as KeyFigure,
    )
    from hpml_lab.core.experiment.fits import Fits as Fits
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
