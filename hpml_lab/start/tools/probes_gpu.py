"""Probes of the GPU: driver, CUDA, cuDNN, and the device that experiments use."""

import os

from hpml_lab.core.system.installed import find_tool
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, TORCH_FIRST, Answers, Finding

CUDA_BUILD = "install a CUDA build of torch: https://docs.pytorch.org has the commands"
OLDEST_DRIVER = {"12": "525", "13": "580"}  # by the major version of CUDA; NVIDIA's release notes of the toolkit
NO_GPU = "The notebooks run on the CPU at quick size and show recorded GPU runs where there are any."


def driver(answers: Answers) -> Finding:
    """NVIDIA's driver, as nvidia-smi reports it."""
    seen = answers["nvidia-smi"]["gpus"]
    if seen:
        return Finding("driver", OK, f"{seen[0]['driver_version']} ({len(seen)} GPU{'s' * (len(seen) > 1)})")
    if answers["torch"].get("gpus"):
        return Finding(
            "driver",
            LIMITED,
            "torch sees a GPU, but nvidia-smi does not answer",
            "GPU use over time cannot be sampled.",
            "put nvidia-smi on PATH; in Docker: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    if find_tool("nvidia-smi"):
        return Finding(
            "driver",
            MISSING,
            "nvidia-smi is here but does not answer",
            "The driver is not loaded or does not fit.",
            "restart the machine, or install NVIDIA's driver again",
        )
    return Finding(
        "driver",
        MISSING,
        "no nvidia-smi",
        "",
        "if there is an NVIDIA GPU: install its driver; in Docker: docker run --gpus all",
    )


def cuda(answers: Answers) -> Finding:
    """GPUs that torch can compute on; where the driver sees one and torch does not, why."""
    facts, seen = answers["torch"], answers["nvidia-smi"]["gpus"] or []
    gpus = facts.get("gpus") or []
    value = "; ".join(f"{gpu['name']}, {gpu['memory_gb']} GB, compute capability {gpu['capability']}" for gpu in gpus)
    if gpus and not facts["why"]:
        return Finding("cuda", OK, value)
    if gpus:
        usable = ", ".join(facts["kernels"]) or "7.5 or higher"
        return Finding(
            "cuda",
            MISSING,
            f"{value}: not usable by this torch",
            facts["why"],
            f"use a GPU of compute capability {usable}, or a torch that was built for this one",
        )
    if not seen:
        return Finding(
            "cuda",
            MISSING,
            "no GPU that torch can use",
            NO_GPU,
            "use a machine with an NVIDIA GPU; in Docker: docker run --gpus all",
        )
    value = "; ".join(f"{gpu['name']}, {gpu['memory.total']} MiB, compute capability {gpu['compute_cap']}" for gpu in seen)
    if "error" in facts:
        return Finding("cuda", MISSING, value, "torch itself does not work here.", TORCH_FIRST)
    if not facts["cuda"]:
        return Finding("cuda", MISSING, f"{value}: torch is a build without CUDA", NO_GPU, CUDA_BUILD)
    if "CUDA_VISIBLE_DEVICES" in os.environ and "No CUDA GPUs" in facts["why"]:
        return Finding(
            "cuda", MISSING, f"{value}: hidden from torch", "CUDA_VISIBLE_DEVICES is set.", "unset CUDA_VISIBLE_DEVICES"
        )
    needed = OLDEST_DRIVER.get(facts["cuda"].partition(".")[0])
    fix = f"update the driver ({seen[0]['driver_version']}) to one for CUDA {facts['cuda']}"
    fix += f": {needed} or newer" if needed else ""
    return Finding("cuda", MISSING, f"{value}: not usable by torch", facts["why"], fix)


def two_gpus(answers: Answers) -> Finding:
    """A GPU for each of several ranks: NCCL takes one rank per GPU."""
    gpus = [] if answers["torch"].get("why") else answers["torch"].get("gpus") or []
    if len(gpus) >= 2:
        return Finding("two-gpus", OK, f"{len(gpus)} GPUs")
    return Finding(
        "two-gpus",
        MISSING,
        "one GPU" if gpus else "no GPU",
        "The ranks of distributed training are processes on the CPU, connected by gloo.",
        "use a machine with two GPUs or more; the bytes and the weights are the same without",
    )


def cudnn(answers: Answers) -> Finding:
    """NVIDIA's library of convolutions, which comes with torch's CUDA builds."""
    version = answers["torch"].get("cudnn")
    if version is None:
        return Finding("cudnn", MISSING, "not part of this torch", "", CUDA_BUILD)
    value = f"{version // 10_000}.{version // 100 % 100}.{version % 100}"
    return (
        Finding("cudnn", OK, value)
        if answers["torch"]["gpus"]
        else Finding("cudnn", LIMITED, value, "Installed, but unused without a GPU.")
    )


def device(answers: Answers) -> Finding:
    """The device and the dtype that experiments use here, with the reasons."""
    facts = answers["device"]
    if "error" in facts:
        return Finding("device", MISSING, "none could be chosen", facts["error"], facts.get("fix") or TORCH_FIRST)
    return Finding(
        "device",
        OK,
        f"{facts['device']}, mixed precision in {facts['dtype']}",
        f"{facts['device']}: {facts['reason']}. {facts['dtype']}: {facts['dtype_reason']}.",
    )
