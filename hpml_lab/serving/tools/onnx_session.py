"""Run an ONNX file with ONNX Runtime. Nothing here loads torch, so that a server that starts anew is quick."""

from pathlib import Path

import numpy as np

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import need
from hpml_lab.core.system.readers import STATE, open_file

INPUT, OUTPUT = "x", "y"
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def choose_provider(cuda: bool = False) -> str:
    """ONNX Runtime's name for what computes: CUDA if it is asked for and this build has it, else the CPU.

    LabError if ONNX Runtime is not installed.
    """
    runtime = need("onnxruntime")
    return CUDA if cuda and CUDA in runtime.get_available_providers() else CPU


class OnnxSession:
    """A model (n, ...) -> (n, ...) in an ONNX file, for any n, on one CPU thread or on a GPU.

    model     the path of a file, or its bytes
    provider  as choose_provider gives it; on CUDA in float32, without TF32
    Raises LabError if ONNX Runtime is not installed, or for a file that it does not read.
    """

    def __init__(self, model: Path | str | bytes, provider: str = CPU) -> None:
        runtime = need("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        providers = [(CUDA, {"use_tf32": "0"}), CPU] if provider == CUDA else [CPU]
        try:
            if not isinstance(model, bytes):
                open_file(model, STATE).close()  # ONNX Runtime itself would wait for who writes into a pipe
            source = model if isinstance(model, bytes) else str(model)
            self._session = runtime.InferenceSession(source, options, providers=providers)
        except Exception as error:  # ONNX Runtime has a class for each status, and none that they share
            what = "this ONNX model" if isinstance(model, bytes) else f"{Path(model).name}"
            raise LabError(
                f"ONNX Runtime does not read {what} ({' '.join(str(error).split())[:200]}).", "Export the model again."
            ) from error
        self.provider = self._session.get_providers()[0]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The outputs for a batch of inputs (n, ...), float32."""
        return self._session.run([OUTPUT], {INPUT: np.ascontiguousarray(x, dtype=np.float32)})[0]
