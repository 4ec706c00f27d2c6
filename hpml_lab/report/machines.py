"""The cards of the machines that the results of a folder come from."""

from dataclasses import dataclass
from itertools import groupby

from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.machine import gpus_of

# Figures of a machine that experiments measure: (experiment, key figure, words on the card).
MEASURED = (
    ("cpu-vs-gpu", "CPU memory bandwidth (large copy)", "memory bandwidth (copy)"),
    ("cpu-vs-gpu", "host to GPU, pinned", "host to GPU, pinned memory"),
    ("gemm-tensor-cores", "best fp32", "best matrix product, fp32"),
    ("gemm-tensor-cores", "best bf16", "best matrix product, bf16"),
    ("gemm-tensor-cores", "best fp16", "best matrix product, fp16"),
    ("disk-iops", "highest bandwidth", "disk, highest bandwidth"),
)


@dataclass(frozen=True)
class MachineCard:
    """One machine: what it is, what experiments measured of it, and what was run on it."""

    name: str
    facts: list[tuple[str, str]]
    measured: list[tuple[str, str]]


def machine_cards(results: list[Result]) -> list[MachineCard]:
    """A card for each machine among the results, that of the newest result first."""
    newest_first = sorted(results, key=lambda result: result.when, reverse=True)
    by_machine = [list(own) for _, own in groupby(sorted(newest_first, key=_identity), key=_identity)]
    return [_card(own) for own in sorted(by_machine, key=lambda own: own[0].when, reverse=True)]


def _identity(result: Result) -> str:
    return repr([result.machine.get(name) for name in ("cpu", "cores", "memory_gb", "gpu", "gpu_memory_gb", "system")])


def _card(results: list[Result]) -> MachineCard:
    """The card of one machine, from its results, newest first: versions are those of the newest."""
    found = results[0].machine
    launches = [result.machine["launch_us"] for result in results if result.machine.get("launch_us")]
    facts = [
        ("GPU", _with(found["gpu"] and gpus_of(found), found.get("gpu_memory_gb"), "GB") or "none that torch can use"),
        ("driver", found.get("driver")),
        ("clocks, at most", found.get("gpu_clocks")),
        ("launch of a kernel", _with("", launches[0] if launches else None, "µs")),
        ("processor", f"{found['cpu']}, {plural(found['cores'], 'core')} used"),
        ("memory", _with("", found.get("memory_gb"), "GB")),
        ("system", found.get("system")),
        ("Python", found.get("python")),
        ("PyTorch", found["torch"] + (f", CUDA {found['cuda']}" if found.get("cuda") else "")),
        ("NumPy", found.get("numpy")),
        ("hpml-lab", found.get("commit") and f"commit {found['commit']}"),
        ("experiments", f"{len(results)}, {_duration(sum(result.seconds for result in results))} in all"),
        ("when", _period([result.when for result in results])),
    ]
    values = {(result.slug, figure.label): figure for result in results for figure in result.key_figures}
    shown = [(words, values.get((slug, label))) for slug, label, words in MEASURED]
    measured = [
        (words, f"{number(figure.here)} {figure.unit}") for words, figure in shown if figure and figure.here is not None
    ]
    return MachineCard(found.get("gpu") or found["cpu"], [(name, value) for name, value in facts if value], measured)


def _with(words: str | None, amount: float | None, unit: str) -> str:
    parts = [words, None if amount is None else f"{amount:g} {unit}"]
    return ", ".join(part for part in parts if part)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _period(moments: list[str]) -> str:
    """The days of the first and the last run; times are written year first, so they sort as text."""
    days = sorted({moment.split(" ")[0] for moment in moments if moment})
    return " to ".join(days[:: len(days) - 1] if len(days) > 1 else days)
