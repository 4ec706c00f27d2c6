"""The doctor's report as a result."""

from dataclasses import dataclass, field

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.start.tools.doctor import PARTNERS, examine
from hpml_lab.start.tools.finding import MISSING, OK

SETTINGS = ("cores", "memory", "shm", "disk")


@dataclass
class MachineFinding(Row):
    """What one probe found."""

    name: str = column("what")
    state: str = column("state")
    value: str = column("found")


@dataclass
class NotebookFinding(Row):
    """What one notebook can show here."""

    name: str = column("notebook")
    state: str = column("state")
    value: str = column("what it can show")
    experiments: int = column("experiments")
    less: int = column("that show less")
    lacks: list[str] = field(default_factory=list)


def draw(result: Result):
    """For each notebook, how many of its experiments run on this machine: with everything, or with less than they could show.

    The tools with which they would show more are named next to the bar.
    """
    notebooks = result.rows(NotebookFinding)
    names = [row.name for row in notebooks]
    missing = [row.experiments if row.state == MISSING else 0 for row in notebooks]
    less = [0 if row.state == MISSING else row.less for row in notebooks]
    everything = [row.experiments - less[i] - missing[i] for i, row in enumerate(notebooks)]
    figure = style.new_figure(8, 1.4 + 0.25 * len(notebooks))
    axes = figure.subplots()
    axes.barh(names, everything, color=style.GREEN, label="runs, shows everything")
    axes.barh(
        names, less, left=everything, color=(style.GREEN, 0.45), hatch="//", edgecolor=style.GREEN, label="runs, shows less"
    )
    axes.barh(names, missing, color=style.ORANGE)
    for i, row in enumerate(notebooks):
        remark = f"more with {', '.join(row.lacks)}" if row.lacks else ""
        remark = "cannot be started" if missing[i] else remark
        axes.text(row.experiments + 0.1, i, remark, va="center", fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.xaxis.get_major_locator().set_params(integer=True)
    total, here = sum(row.experiments for row in notebooks), sum(everything) + sum(less)
    axes.set_title(f"{here} of {total} experiments run here; {sum(everything)} show everything")
    axes.set(xlabel="experiments", xlim=(0, 1.6 * max([row.experiments for row in notebooks], default=1)))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


@experiment("environment", lecture="L2 L1 L3", notebook="00_start", draw=draw)
def environment(params: Params) -> Result:
    """What this machine is, and what each notebook can show on it."""
    report = examine(device=str(params.device))
    # The doctor's process was given this device, so why it was chosen is known only here.
    chosen = f"{report['device'].value}; {params.device}: {params.device.reason}"
    findings = [
        MachineFinding(found.name, found.state, chosen if found.name == "device" else found.value) for found in report.findings
    ]
    notebooks = [
        NotebookFinding(found.name, found.state, found.value, found.experiments, found.less, list(found.lacks))
        for found in report.notebooks
    ]
    limits = [found.name for found in report.findings if found.name in SETTINGS and found.state != OK]

    result = Result(
        [Table("This machine", findings), Table("Notebooks", notebooks), Table("Platform settings", report.settings)]
    )
    result.claim(
        "Python, torch and torchvision work together here",
        report.compatible,
        ", ".join(report[name].value for name in PARTNERS),
    )
    result.claim(
        "Every notebook can be started here",
        report.ready,
        f"{sum(found.state != MISSING for found in report.notebooks)} of {len(report.notebooks)}",
    )
    result.check(
        "A Python process started from here computes on the same device",
        report["device"].value.startswith(f"{params.device},"),
        report["device"].value,
    )
    result.measured(
        "Cores, memory, shared memory and disk leave room for every notebook",
        not limits,
        f"short: {', '.join(limits)}" if limits else f"{len(SETTINGS)} settings in order",
    )
    result.measured("torch can use a CUDA GPU here", report["cuda"].state == OK, report["cuda"].value)
    result.notes += [f"{found.name}: {found.fix}." for found in report.findings if found.fix]
    return result
