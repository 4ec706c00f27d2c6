"""Each probe, with the thing it looks for there, missing, and broken."""

import os
import stat
import subprocess
import sys

import pytest

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.start.tools import asking, probes_machine
from hpml_lab.start.tools.doctor import PROBES
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, REINSTALL
from hpml_lab.start.tools.probes_software import PARTNERS

H200 = {"name": "NVIDIA H200", "memory_gb": 150.0, "capability": "9.0"}
SEEN = {"name": "Tesla T4", "memory.total": "15360", "compute_cap": "7.5", "driver_version": "535.104.05"}


def answers(**steps):
    """What the asked processes say on a healthy machine without a GPU, with `steps` replaced."""
    healthy = {
        "torch": {
            "version": "2.15.0",
            "cuda": "13.2",
            "hip": None,
            "gpus": [],
            "why": "RuntimeError: no NVIDIA driver",
            "cudnn": 92600,
            "kernels": ["7.5", "8.0", "9.0"],
        },
        "device": {"device": "cpu", "reason": "no GPU", "dtype": "float32", "dtype_reason": "an old processor"},
        "torchvision": {"version": "0.29.2"},
        "experiments": {"all": [{"slug": "xor", "notebook": "03_nets", "uses": []}], "failed": {}},
        "mnist": {"present": True, "damaged": []},
        "nvidia-smi": {"gpus": None},
    }
    return healthy | {name.replace("_", "-"): facts for name, facts in steps.items()}


def torch_with(**facts):
    return answers()["torch"] | facts


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """An empty PATH, and a function that lays a shell script on it; the folder of this Python is empty too."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    monkeypatch.delenv("CXX", raising=False)

    def lay(name, script):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return lay


def versions(monkeypatch, **installed):
    monkeypatch.setattr(machine, "installed_version", installed.get)


def test_every_finding_that_is_not_ok_says_how_to_fix_it_in_one_line(tools, monkeypatch):
    versions(monkeypatch)
    worst = answers(
        torch={"error": "ModuleNotFoundError: No module named 'torch'"},
        device={"error": "no torch"},
        torchvision={"error": "no torch"},
        experiments={"error": "no torch"},
        mnist={"error": "no torch"},
    )
    findings = [probe(worst) for probe in PROBES.values()]
    assert {"torch", "torchvision", "workbook", "cuda", "compiler", "graphviz", "py-spy", "nsys", "dali", "mnist"} <= {
        finding.name for finding in findings if finding.state == MISSING
    }
    for finding in findings:
        assert finding.state in (OK, LIMITED, MISSING)
        assert "\n" not in finding.fix and (finding.fix or finding.state == OK), finding


@pytest.mark.parametrize("version, state", [((3, 10), MISSING), ((3, 11), OK), ((3, 14), OK), ((3, 15), LIMITED)], ids=str)
def test_python_too_old_stops_and_too_new_is_untested(version, state, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    found = PROBES["python"](answers())
    assert found.state == state
    assert ("3.11 to 3.14" in found.means) == (state != OK)


def test_a_working_torch_shows_its_version_and_cuda_build():
    found = PROBES["torch"](answers())
    assert (found.state, found.value) == (OK, "2.15.0") and "CUDA 13.2" in found.means
    assert "without CUDA" in PROBES["torch"](answers(torch=torch_with(cuda=None))).means
    assert "ROCm 7.2 build, for AMD's GPUs" in PROBES["torch"](answers(torch=torch_with(cuda=None, hip="7.2"))).means


def test_a_missing_torch_is_told_from_one_that_does_not_load(monkeypatch):
    versions(monkeypatch)
    found = PROBES["torch"](answers(torch={"error": "ModuleNotFoundError: No module named 'torch'"}))
    assert (found.state, found.value) == (MISSING, "not installed") and "bootstrap.py lab" in found.fix
    versions(monkeypatch, torch="2.15.0")
    found = PROBES["torch"](answers(torch={"error": "OSError: libcudart.so.13: cannot open shared object file"}))
    assert found.value == "2.15.0 does not work" and "libcudart" in found.means


def test_an_old_torch_is_named_with_the_oldest_that_works(monkeypatch):
    versions(monkeypatch, torch="2.5.1")
    with pytest.raises(LabError) as caught:
        machine.require_torch()
    found = PROBES["torch"](answers(torch={"error": caught.value.problem, "fix": caught.value.fix}))
    assert found.state == MISSING
    assert "2.5.1 is too old" in found.means and "torch>=2.11" in found.fix


NMS = "RuntimeError: operator torchvision::nms does not exist"


@pytest.mark.parametrize(
    "torch, fix",
    [
        ("2.13.0", "pip install --force-reinstall 'torch==2.13.*' 'torchvision==0.28.*'"),
        ("2.15.0", "pip install --force-reinstall 'torch==2.15.*' 'torchvision==0.29.*'"),
        ("2.12.1+cu130", "pip install --force-reinstall 'torch==2.12.*' 'torchvision==0.27.*'"),
        ("3.0.0", "bootstrap.py lab"),
    ],
)
def test_a_torchvision_of_another_torch_is_told_with_the_one_that_fits(torch, fix, monkeypatch):
    versions(monkeypatch, torch=torch, torchvision="0.20.0")
    found = PROBES["torchvision"](answers(torchvision={"error": NMS}))
    assert (found.state, found.value) == (MISSING, f"0.20.0 does not fit torch {torch}")
    assert "torchvision::nms does not exist" in found.means
    assert fix in found.fix


def test_a_missing_or_broken_torchvision_is_answers(monkeypatch):
    versions(monkeypatch, torch="2.13.0")
    found = PROBES["torchvision"](answers(torchvision={"error": "ModuleNotFoundError: No module named 'torchvision'"}))
    assert (found.state, found.value) == (MISSING, "not installed") and "0.28" in found.fix
    versions(monkeypatch, torch="2.13.0", torchvision="0.28.0")
    found = PROBES["torchvision"](answers(torchvision={"error": "ImportError: libjpeg"}))
    assert found.value == "0.28.0 does not work" and "libjpeg" in found.means


def test_every_torch_of_the_workbook_has_its_torchvision():
    oldest = ".".join(map(str, machine.OLDEST_TORCH))
    assert next(iter(PARTNERS)) == oldest
    found = machine.installed_version("torch").split(".")
    assert machine.installed_version("torchvision").startswith(PARTNERS[".".join(found[:2])])


def test_packages_that_are_absent_or_too_old_are_named(monkeypatch):
    real = machine.installed_version
    changed = {"pandas": "1.5.3", "ipywidgets": None}
    monkeypatch.setattr(machine, "installed_version", lambda name: changed.get(name, real(name)))
    found = PROBES["packages"](answers())
    assert found.state == LIMITED
    assert "pandas 1.5.3" in found.value and "ipywidgets" in found.value and "numpy" not in found.value
    changed.clear()
    assert PROBES["packages"](answers()).state == OK


def test_packages_of_the_extras_are_not_asked_for(monkeypatch):
    real, extras = machine.installed_version, ("pytest", "nvidia-dali-cuda130")
    monkeypatch.setattr(machine, "installed_version", lambda name: None if name in extras else real(name))
    assert PROBES["packages"](answers()).state == OK


def test_experiments_that_do_not_load_stop_the_workbook():
    assert PROBES["workbook"](answers()).state == OK
    found = PROBES["workbook"](answers(experiments={"error": "ImportError: cannot import name 'x'"}))
    assert (found.state, found.fix) == (MISSING, REINSTALL) and "cannot import" in found.means


def test_a_topic_that_does_not_load_is_named_and_limits_the_workbook():
    failed = {"loading": "ModuleNotFoundError: No module named 'fcntl'"}
    found = PROBES["workbook"](answers(experiments={"all": [], "failed": failed}))
    assert found.state == LIMITED and "those of loading do not" in found.value and "fcntl" in found.means


def test_nvidia_smi_is_read(tools):
    assert asking.nvidia_smi() is None
    tools("nvidia-smi", 'echo "Tesla T4, 15360, 7.5, 535.104.05"\necho "Tesla T4, 15360, 7.5, 535.104.05"')
    assert asking.nvidia_smi() == [SEEN, SEEN]
    tools("nvidia-smi", 'echo "NVIDIA-SMI has failed because it could not communicate with the driver"\nexit 9')
    assert asking.nvidia_smi() is None
    tools("nvidia-smi", 'echo "something else"')
    assert asking.nvidia_smi() == []


def test_a_tool_that_hangs_is_as_good_as_absent(tools):
    tools("slow", "exec /bin/sleep 30")
    assert asking.run_tool(["slow"], seconds=0.2) is None


def test_a_usable_gpu_shows_name_memory_and_compute_capability():
    here = answers(torch=torch_with(gpus=[H200], why=""), nvidia_smi={"gpus": [SEEN]})
    assert PROBES["cuda"](here).value == "NVIDIA H200, 150.0 GB, compute capability 9.0"
    assert PROBES["cuda"](here).state == PROBES["driver"](here).state == PROBES["cudnn"](here).state == OK
    assert PROBES["driver"](here).value == "535.104.05 (1 GPU)"
    assert PROBES["cudnn"](here).value == "9.26.0"


def test_no_gpu_names_the_docker_flag(tools):
    found = PROBES["cuda"](answers())
    assert found.state == MISSING and "--gpus all" in found.fix and "recorded GPU runs" in found.means
    assert PROBES["driver"](answers()).state == MISSING
    assert PROBES["cudnn"](answers()).state == LIMITED
    assert PROBES["cudnn"](answers(torch=torch_with(cuda=None, cudnn=None))).state == MISSING


def test_a_gpu_that_torch_cannot_use_is_shown_with_the_reason(tools, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = {"gpus": [SEEN]}
    without_cuda = PROBES["cuda"](answers(torch=torch_with(cuda=None), nvidia_smi=seen))
    assert "Tesla T4, 15360 MiB, compute capability 7.5" in without_cuda.value and "CUDA build of torch" in without_cuda.fix
    old = torch_with(why="RuntimeError: The NVIDIA driver on your system is too old (found version 12020)")
    old_driver = PROBES["cuda"](answers(torch=old, nvidia_smi=seen))
    assert "too old" in old_driver.means
    assert "update the driver (535.104.05) to one for CUDA 13.2: 580 or newer" in old_driver.fix
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hidden = PROBES["cuda"](answers(torch=torch_with(why="RuntimeError: No CUDA GPUs are available"), nvidia_smi=seen))
    assert hidden.fix == "unset CUDA_VISIBLE_DEVICES"
    kernels = torch_with(gpus=[H200], why="RuntimeError: CUDA error: no kernel image is available for execution on the device")
    too_new = PROBES["cuda"](answers(torch=kernels, nvidia_smi=seen))
    assert too_new.state == MISSING and "no kernel image" in too_new.means and "capability 7.5, 8.0, 9.0" in too_new.fix
    broken = PROBES["cuda"](answers(torch={"error": "ImportError"}, nvidia_smi=seen))
    assert broken.fix == "fix torch first"


def test_a_driver_that_does_not_answer_differs_from_none(tools):
    tools("nvidia-smi", "exit 9")
    assert "does not answer" in PROBES["driver"](answers()).value
    through_torch = PROBES["driver"](answers(torch=torch_with(gpus=[H200])))
    assert through_torch.state == LIMITED


def test_the_device_is_shown_with_both_reasons():
    found = PROBES["device"](answers())
    assert found.value == "cpu, mixed precision in float32"
    assert "no GPU" in found.means and "an old processor" in found.means
    wrong = PROBES["device"](answers(device={"error": "'gpu' is not a device of this workbook.", "fix": "Use cpu."}))
    assert (wrong.state, wrong.fix) == (MISSING, "Use cpu.")


def test_one_core_is_a_limit(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    found = PROBES["cores"](answers())
    assert found.state == LIMITED and "8 in the machine" in found.value
    monkeypatch.setattr(machine, "cores", lambda: 8)
    assert PROBES["cores"](answers()).state == OK


@pytest.mark.parametrize("probe, much, little", [("shm", 8e9, 64e6), ("disk", 50e9, 1e9)])
def test_little_space_is_a_limit(probe, much, little, monkeypatch):
    def space(free):
        monkeypatch.setattr(probes_machine.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free, "total": free}))
        return PROBES[probe](answers())

    assert space(much).state == OK
    assert space(little).state == LIMITED


def test_a_system_without_shared_memory_files_is_answers(monkeypatch):
    def absent(_):
        raise FileNotFoundError

    monkeypatch.setattr(probes_machine.shutil, "disk_usage", absent)
    assert (PROBES["shm"](answers()).state, PROBES["shm"](answers()).value) == (LIMITED, "no /dev/shm")


def test_memory_is_that_of_the_container_where_it_is_less(monkeypatch):
    assert PROBES["memory"](answers()).state == OK or probes_machine.memory_bytes() < 4e9
    monkeypatch.setattr(machine, "memory_limit", lambda: 2_000_000_000)
    found = PROBES["memory"](answers())
    assert (found.state, found.value) == (LIMITED, "2.0 GB")
    monkeypatch.setattr(probes_machine, "memory_bytes", lambda: None)
    assert PROBES["memory"](answers()).value == "unknown"


def test_a_quota_of_cores_is_shown(monkeypatch):
    for module in (machine, probes_machine):
        monkeypatch.setattr(module, "cpu_quota", lambda: 0.5)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    found = PROBES["cores"](answers())
    assert found.state == LIMITED and found.value.startswith("1, ") and "(8 in the machine), a quota of 0.5" in found.value


def test_the_workers_of_a_parallel_test_run_fit_into_the_container(monkeypatch, request):
    (settings,) = [plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "WORKER_BYTES")]
    monkeypatch.setattr(machine, "cores", lambda: 64)
    monkeypatch.setattr(machine, "memory_limit", lambda: 8_000_000_000)
    assert settings.pytest_xdist_auto_num_workers() == 2


@pytest.mark.parametrize(
    "probe, tool, script, value",
    [
        (PROBES["graphviz"], "dot", "echo 'dot - graphviz version 12.1.0 (20240811)' >&2", "12.1.0"),
        (PROBES["fio"], "fio", "echo fio-3.33", "3.33"),
        (PROBES["perf"], "perf", "echo perf version 6.1.1", "6.1.1"),
        (PROBES["py-spy"], "py-spy", "echo 'py-spy 0.4.1'", "0.4.1"),
        (PROBES["nsys"], "nsys", "echo 'NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0'", "2025.3.1.90"),
        (
            PROBES["compiler"],
            "g++" if sys.platform != "darwin" else "clang++",
            "echo 'g++ (Debian 12.2.0-14) 12.2.0'",
            "12.2.0",
        ),
    ],
)
def test_a_tool_is_found_by_its_own_answer(probe, tool, script, value, tools):
    assert probe(answers()).state == MISSING
    tools(tool, "exit 1")
    assert probe(answers()).state == MISSING, "it is there, but does not work"
    tools(tool, "exit 0")
    assert probe(answers()).state == OK, "it works, and does not say its version"
    tools(tool, script)
    found = probe(answers())
    assert found.state == OK and value in found.value


def test_the_compiler_is_the_one_that_cxx_names(tools, monkeypatch):
    tools("my-cxx", "echo 'my-cxx 9.1'")
    monkeypatch.setenv("CXX", "my-cxx -std=c++20")
    assert PROBES["compiler"](answers()).value == "my-cxx 9.1"


def test_a_tool_beside_this_python_is_found_without_a_path(tmp_path, monkeypatch):
    script = tmp_path / "bin" / "py-spy"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho py-spy 0.4.1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(script.parent / "python"))
    assert PROBES["py-spy"](answers()).state == OK


def test_dali_is_found_in_either_build(monkeypatch):
    versions(monkeypatch)
    assert PROBES["dali"](answers()).state == MISSING
    versions(monkeypatch, **{"nvidia-dali-cuda120": "2.4.0"})
    assert PROBES["dali"](answers()).value == "2.4.0 (nvidia-dali-cuda120)"


@pytest.mark.parametrize("name", ["deepspeed", "torchao", "torch-pruning", "pydicom", "h5py", "onnxruntime", "litserve"])
def test_an_optional_package_is_found_without_loading_it(monkeypatch, name):
    versions(monkeypatch)
    found = PROBES[name](answers())
    assert found.state == MISSING and f"pip install {name}" in found.fix
    versions(monkeypatch, **{name: "0.19.8", "onnx": "1.23.2", "onnxscript": "0.7.2"})
    # None makes every import of it fail, also where another test has loaded the package into this process
    monkeypatch.setitem(sys.modules, name.replace("-", "_"), None)
    found = PROBES[name](answers())
    assert (found.state, found.value) == (OK, "0.19.8")


def test_onnx_runtime_needs_what_models_are_exported_with(monkeypatch):
    versions(monkeypatch, onnxruntime="1.32.0", onnx="1.23.2")
    found = PROBES["onnxruntime"](answers())
    assert (found.state, found.value) == (MISSING, "1.32.0, without onnxscript")
    assert "pip install onnxruntime onnx onnxscript" in found.fix


@pytest.mark.parametrize(
    "facts, value, state",
    [
        ({"gpus": [], "why": "RuntimeError: no NVIDIA driver"}, "no GPU", MISSING),
        ({"gpus": [H200], "why": ""}, "one GPU", MISSING),
        ({"gpus": [H200, H200], "why": ""}, "2 GPUs", OK),
        ({"gpus": [H200, H200], "why": "RuntimeError: no kernel image"}, "no GPU", MISSING),
    ],
)
def test_two_gpus_are_two_that_torch_can_use(facts, value, state):
    found = PROBES["two-gpus"](answers(torch=torch_with(**facts)))
    assert (found.value, found.state) == (value, state)


def test_two_hosts_need_the_tools_and_the_permission(tools, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(probes_machine.shutil, "which", lambda name, path=None: None)
        found = PROBES["namespaces"](answers())
    assert found.state == MISSING and found.value == "no unshare, nsenter, ip, tc" and "iproute2" in found.fix
    for name in ("nsenter", "ip", "tc"):
        tools(name, "exit 0")
    for status, state, value in ((0, OK, "two hosts can be set up"), (1, MISSING, "not permitted")):
        tools("unshare", f"exit {status}")
        assert (PROBES["namespaces"](answers()).state, PROBES["namespaces"](answers()).value) == (state, value)
    tools("unshare", 'while [ "$1" != sh ]; do shift; done\nexec /bin/sh -c "$3"')
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/mnt/c/Program Files")
    assert PROBES["namespaces"](answers()).state == OK


def test_mnist_is_present_absent_or_damaged():
    assert PROBES["mnist"](answers()).state == OK
    absent = PROBES["mnist"](answers(mnist={"present": False}))
    assert absent.state == MISSING and "hpml-lab data fetch mnist" in absent.fix and "HPML_DATA" in absent.fix
    damaged = PROBES["mnist"](answers(mnist={"present": True, "damaged": ["train-images-idx3-ubyte.gz"]}))
    assert damaged.state == MISSING and "train-images-idx3-ubyte.gz" in damaged.value


def test_the_probes_import_neither_torch_nor_any_other_package():
    code = (
        "import sys; from hpml_lab.start.tools import doctor; import hpml_lab.cli;"
        "print([name for name in ('torch', 'numpy', 'pandas', 'psutil', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
