"""Probes of Python, torch, torchvision and the packages: do they work, and do they fit together?"""

import platform
import re
import sys

from hpml_lab.core.system import machine
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, REINSTALL, TORCH_FIRST, Answers, Finding

PYTHONS = ((3, 11), (3, 14))  # oldest and newest that the workbook is tested with
PARTNERS = {"2.11": "0.26", "2.12": "0.27", "2.13": "0.28", "2.14": "0.29", "2.15": "0.29"}  # torch: torchvision
DALI = ("nvidia-dali-cuda130", "nvidia-dali-cuda120")


def python(answers: Answers) -> Finding:
    """The interpreter: too old stops everything, too new is untested."""
    version, (oldest, newest) = sys.version_info[:2], PYTHONS
    span = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    fix = f"install Python {newest[0]}.{newest[1]}, then with it: {REINSTALL}"
    if version < oldest:
        return Finding("python", MISSING, platform.python_version(), f"The workbook needs Python {span}.", fix)
    if version > newest:
        return Finding("python", LIMITED, platform.python_version(), f"The workbook was tested with {span} only.", fix)
    return Finding("python", OK, platform.python_version())


def torch(answers: Answers) -> Finding:
    """PyTorch: installed, new enough, and it loads."""
    facts = answers["torch"]
    if "error" in facts:
        version = machine.installed_version("torch")
        value = f"{version} does not work" if version else "not installed"
        fix = facts.get("fix") or f"{REINSTALL}: it installs a torch that works"
        return Finding("torch", MISSING, value, facts["error"], fix)
    if facts["hip"]:
        means = f"A ROCm {facts['hip']} build, for AMD's GPUs: they run as cuda; no one has tried the workbook on one."
    else:
        means = f"A CUDA {facts['cuda']} build." if facts["cuda"] else "A build without CUDA."
    return Finding("torch", OK, facts["version"], means)


def torchvision(answers: Answers) -> Finding:
    """torchvision with this torch: `operator torchvision::nms does not exist` means that the two do not fit."""
    facts, version = answers["torchvision"], machine.installed_version("torchvision")
    if "error" not in facts:
        return Finding("torchvision", OK, facts["version"], "Its compiled operators run with this torch.")
    if version is None:
        return Finding("torchvision", MISSING, "not installed", "", _partner())
    if "torchvision::nms" in facts["error"]:
        value = f"{version} does not fit torch {machine.installed_version('torch')}"
        return Finding("torchvision", MISSING, value, f"It was built for another torch ({facts['error']}).", _partner())
    return Finding("torchvision", MISSING, f"{version} does not work", facts["error"], _partner())


def _partner() -> str:
    """The command that installs the installed torch again together with its torchvision, so that both come from one place."""
    installed = machine.installed_version("torch")
    if installed is None:
        return REINSTALL
    version = ".".join(installed.split(".")[:2])
    if version not in PARTNERS:
        return f"{REINSTALL}: it installs a torch and a torchvision that fit"
    return f"pip install --force-reinstall 'torch=={version}.*' 'torchvision=={PARTNERS[version]}.*'"


def packages(answers: Answers) -> Finding:
    """The other packages that the workbook asks for (pyproject.toml: the base and the extra `lab`), by name and lower bound."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        wanted = requires("hpml-lab") or []
    except PackageNotFoundError:
        return Finding("packages", LIMITED, "hpml-lab is not installed in this Python", "It runs from its folder.", REINSTALL)
    absent = []
    for line in wanted:
        name, bound = re.match(r"([\w.-]+)[^>=]*(?:>=([\d.]+))?", line).groups()
        found = machine.installed_version(name)
        if name in ("torch", "torchvision") or "extra ==" in line and not re.search(r"extra == .lab\b", line):
            continue
        if found is None or bound and _numbers(found) < _numbers(bound):
            absent.append(f"{name} {found or ''}".strip())
    if absent:
        return Finding("packages", LIMITED, f"absent or too old: {', '.join(absent)}", "Some cells will not run.", REINSTALL)
    return Finding("packages", OK, "all that the workbook asks for")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def workbook(answers: Answers) -> Finding:
    """The workbook itself: all experiments can be imported."""
    facts = answers["experiments"]
    if "error" in facts:
        fix = TORCH_FIRST if "error" in answers["torch"] else REINSTALL
        return Finding("workbook", MISSING, "its experiments do not load", facts["error"], fix)
    value = f"version {machine.version()}; {len(facts['all'])} experiments load"
    if facts["failed"]:
        why = "; ".join(f"{topic}: {error}" for topic, error in facts["failed"].items())
        return Finding("workbook", LIMITED, f"{value}, those of {', '.join(facts['failed'])} do not", why, REINSTALL)
    return Finding("workbook", OK, value)


def dali(answers: Answers) -> Finding:
    """NVIDIA's data loading library."""
    found = [f"{version} ({name})" for name in DALI if (version := machine.installed_version(name))]
    if found:
        return Finding("dali", OK, found[0])
    return Finding(
        "dali",
        MISSING,
        "not installed",
        "Its pipelines are left out of the comparison of loaders.",
        f"on Linux: pip install {DALI[0]}",
    )


def deepspeed(answers: Answers) -> Finding:
    """DeepSpeed: its stages of ZeRO and its JSON."""
    means = "Its stages of ZeRO are left out, and the lecture's JSON is not trained."
    return _optional("deepspeed", means, "on Linux: pip install deepspeed")


def torchao(answers: Answers) -> Finding:
    """torchao: quantization as it is done today."""
    means = "Quantization shows the arithmetic from scratch and torch's deprecated functions alone."
    return _optional("torchao", means, "pip install torchao")


def torch_pruning(answers: Answers) -> Finding:
    """torch-pruning: channels taken out of any network."""
    return _optional("torch-pruning", "Channels are taken out of LeNet alone.", "pip install torch-pruning")


def pydicom(answers: Answers) -> Finding:
    """pydicom: CT scans as scanners write them."""
    return _optional("pydicom", "CT scans are stored as .npz alone, and DICOM series are not read.", "pip install pydicom")


def h5py(answers: Answers) -> Finding:
    """h5py: files of the format HDF5."""
    return _optional("h5py", "Of notebook 10's four causes of slow code one is left out: HDF5's lock.", "pip install h5py")


def onnxruntime(answers: Answers) -> Finding:
    """ONNX Runtime, and what torch exports models with for it."""
    means, fix = "Models are not exported to ONNX, and torch alone runs them.", "pip install onnxruntime onnx onnxscript"
    found = _optional("onnxruntime", means, fix)
    absent = [name for name in ("onnx", "onnxscript") if not machine.installed_version(name)]
    if found.state == OK and absent:
        return Finding("onnxruntime", MISSING, f"{found.value}, without {' and '.join(absent)}", means, fix)
    return found


def litserve(answers: Answers) -> Finding:
    """LitServe: an engine that serves models over HTTP."""
    return _optional("litserve", "Only the workbook's own server is put under load.", "pip install litserve")


def _optional(name: str, means: str, fix: str) -> Finding:
    """A package of an extra. It is not loaded here: that takes seconds."""
    if version := machine.installed_version(name):
        return Finding(name, OK, version)
    return Finding(name, MISSING, "not installed", means, fix)


def mnist(answers: Answers) -> Finding:
    """The real MNIST, which some experiments use at full size; the digits of scikit-learn need nothing."""
    facts = answers["mnist"]
    if "error" in facts:
        return Finding("mnist", MISSING, "unknown", facts["error"], TORCH_FIRST)
    if not facts["present"]:
        return Finding(
            "mnist",
            MISSING,
            "not here",
            "The small digits of scikit-learn are used instead.",
            "hpml-lab data fetch mnist (11 MB), or set HPML_DATA to a folder that has MNIST/raw",
        )
    if facts["damaged"]:
        return Finding(
            "mnist",
            MISSING,
            f"damaged: {', '.join(facts['damaged'])}",
            "It will not be used.",
            "hpml-lab data fetch mnist: it replaces what is damaged",
        )
    return Finding("mnist", OK, "70 000 images, checked")
