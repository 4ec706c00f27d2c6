"""What only a Python that loads torch can find out: `python -m hpml_lab.start.tools.torch_probe PARENT torch …`

The doctor runs this in a process of its own, so that a torch that does not load, or ends the process, is a finding and not the
doctor's end. PARENT is the doctor's process id: no probe outlives the doctor.
"""

import json
import re
import sys

from hpml_lab.core.system import machine
from hpml_lab.core.system.children import end_with_parent
from hpml_lab.core.system.errors import LabError


def torch() -> dict:
    """Version, CUDA build, cuDNN, and each GPU that torch can compute on (or why it cannot)."""
    machine.require_torch()
    import torch

    from hpml_lab.core.system.device import capabilities

    facts = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "gpus": [], "why": ""}
    facts["cudnn"] = torch.backends.cudnn.version() if torch.version.cuda else None
    facts["kernels"] = capabilities()
    try:
        torch.cuda.init()
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            facts["gpus"].append(
                {
                    "name": properties.name,
                    "memory_gb": round(properties.total_memory / 1e9, 1),
                    "capability": f"{properties.major}.{properties.minor}",
                }
            )
            # A GPU that is too old for this build of torch shows itself only when a kernel is asked for.
            assert float(torch.ones(2, device=f"cuda:{index}").sum()) == 2
    except Exception as error:
        facts["why"] = without_folders(error)
    return facts


def device() -> dict:
    """The device and the dtype that the workbook chooses here, with the reasons."""
    from hpml_lab.core.system.device import choose_device

    chosen = choose_device()
    return {
        "device": str(chosen),
        "reason": chosen.reason,
        "dtype": str(chosen.dtype).removeprefix("torch."),
        "dtype_reason": chosen.dtype_reason,
    }


def torchvision() -> dict:
    """Its version, after one of its compiled operators has really run with this torch."""
    machine.require_torch()
    import torch
    import torchvision

    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    assert torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8]), 0.5).tolist() == [0]
    return {"version": torchvision.__version__}


def experiments() -> dict:
    """Slug, notebook and needs of every experiment, and the topics that do not load here."""
    from hpml_lab.core.experiment.registry import all_experiments, topics_that_do_not_load

    rows = [{"slug": row.slug, "notebook": row.notebook, "uses": row.uses} for row in all_experiments()]
    return {"all": rows, "failed": topics_that_do_not_load()}


def mnist() -> dict:
    """Whether the real MNIST is present and undamaged; names of files only, no folders."""
    from hpml_lab.data.mnist import SHA256, Damaged, file_of, find_mnist, read_file

    try:
        raw = find_mnist()
    except LabError:
        return {"present": False}
    damaged = []
    for name in SHA256:
        path = file_of(raw, name)
        try:
            read_file(path)
        except Damaged:
            damaged.append(path.name)
    return {"present": True, "damaged": damaged}


STEPS = {step.__name__: step for step in (torch, device, torchvision, experiments, mnist)}


def without_folders(error: BaseException) -> str:
    """Kind and first line of an error, without the folders of this machine: the report may be stored in a notebook."""
    text = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return re.sub(r"(?<![\w:/])(/[^\s/:'\"]+)+/", "…/", text)


def main(names: list[str]) -> None:
    """Take the steps in turn; after a torch that does not work, the rest is not tried."""
    torch_works = True
    for name in names:
        try:
            facts = STEPS[name]() if torch_works else {"error": "torch does not work"}
        except LabError as error:
            facts = {"error": error.problem, "fix": error.fix}
        except Exception as error:
            facts = {"error": without_folders(error)}
        print(json.dumps({"step": name} | facts), flush=True)
        torch_works = torch_works and not (name == "torch" and "error" in facts)


if __name__ == "__main__":
    # Elsewhere a launcher may stand between the two, as in a venv on Windows.
    end_with_parent(int(sys.argv[1]) if sys.platform == "linux" else None)
    main(sys.argv[2:])
