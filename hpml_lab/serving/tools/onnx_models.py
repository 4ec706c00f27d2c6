"""Models as ONNX files: exported by torch, run by ONNX Runtime, and compared output by output."""

import contextlib
import io
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import need
from hpml_lab.serving.tools.onnx_session import CPU, INPUT, OUTPUT, OnnxSession


def export_onnx(model: nn.Module, shape: Sequence[int]) -> bytes:
    """The model as an ONNX file's bytes, for inputs (n, *shape) with any n, by torch's exporter of 2.x (`dynamo=True`).

    LabError if onnx or onnxscript is not installed, or if the exporter does not know what the model does. A model in training
    mode is exported as it is in evaluation mode, and stays in its mode.
    """
    need("onnx"), need("onnxscript")
    training, device = model.training, next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    example = torch.zeros(2, *shape, device=device)  # not 1: a length of 1 would be taken as fixed
    try:
        with _quiet():
            program = torch.onnx.export(
                model.eval(),
                (example,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
                input_names=[INPUT],
                output_names=[OUTPUT],
                verbose=False,
            )
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise LabError(
            f"torch cannot export this {type(model).__name__} ({type(error).__name__}: {(lines or [''])[0][:200]}).",
            "Write forward() without Python decisions on the values of tensors.",
        ) from error
    finally:
        model.train(training)
    return program.model_proto.SerializeToString()


@contextlib.contextmanager
def _quiet():
    """Without the exporter's notes on versions of operators and on its own deprecated calls."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


@dataclass(frozen=True)
class OnnxEquality(Row):
    """One model at one batch size: how far ONNX Runtime's outputs are from torch's, relative to the largest output."""

    model: str = column("model")
    batch: int = column("batch")
    difference: float = column("largest difference", "of the largest output")
    file_mb: float = column("file", "MB")


def relative_difference(outputs: np.ndarray, expected: np.ndarray) -> float:
    """max |outputs − expected| / max |expected|; infinite if shapes differ or a value is NaN."""
    if outputs.shape != expected.shape:
        return float("inf")
    difference = float(np.abs(outputs - expected).max() / np.abs(expected).max())
    return difference if difference == difference else float("inf")


def compare_onnx(
    name: str, model: nn.Module, file: bytes, shape: Sequence[int], batches: Sequence[int], provider: str = CPU
) -> list[OnnxEquality]:
    """Both on the same random inputs, for each batch size, with the same file."""
    session = OnnxSession(file, provider)
    made, rows = torch.Generator().manual_seed(1), []
    for batch in batches:
        x = torch.rand(batch, *shape, generator=made)
        with torch.inference_mode():
            expected = model(x).numpy()
        rows.append(OnnxEquality(name, batch, relative_difference(session(x.numpy()), expected), len(file) / 1e6))
    return rows
