"""The doctor's probes: functions that each look at one thing and return a Finding.

`uses` of an experiment names findings. Nothing here imports torch: what needs it runs in a process of its own
(`torch_probe.py`), so the probes work where torch is missing, old or broken. No finding contains a path of this machine,
because reports are stored in notebooks.
"""

from collections.abc import Callable

from hpml_lab.start import probes_gpu, probes_machine, probes_software, tools
from hpml_lab.start.finding import Answers, Finding

# In the order in which they are shown.
PROBES: dict[str, Callable[[Answers], Finding]] = {
    "python": probes_software.python,
    "torch": probes_software.torch,
    "torchvision": probes_software.torchvision,
    "packages": probes_software.packages,
    "workbook": probes_software.workbook,
    "driver": probes_gpu.driver,
    "cuda": probes_gpu.cuda,
    "cudnn": probes_gpu.cudnn,
    "two-gpus": probes_gpu.two_gpus,
    "device": probes_gpu.device,
    "cores": probes_machine.cores,
    "memory": probes_machine.memory,
    "shm": probes_machine.shm,
    "disk": probes_machine.disk,
    "namespaces": probes_machine.namespaces,
    "compiler": tools.compiler,
    **{tool.name: tool for tool in tools.TOOLS},
    "dali": probes_software.dali,
    "deepspeed": probes_software.deepspeed,
    "torchao": probes_software.torchao,
    "torch-pruning": probes_software.torch_pruning,
    "pydicom": probes_software.pydicom,
    "mnist": probes_software.mnist,
}
