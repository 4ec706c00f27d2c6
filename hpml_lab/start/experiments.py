"""The experiment of notebook 00: the doctor's report as a result."""

from hpml_lab.core import style
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.start.doctor import PARTNERS, examine
from hpml_lab.start.probes import MISSING, OK

NOTEBOOK = "00_start"
SETTINGS = ("cores", "memory", "shm", "disk")


def draw_environment(result: Result):
    """For each notebook, how many of its experiments show all they can on this machine and how many run but show less.

    The tools that are missing are named beside the bar.
    """
    notebooks = result.arrays["notebooks"]
    figure = style.new_figure(8, 1.3 + 0.4 * len(notebooks))
    axes = figure.subplots()
    names = [one["name"] for one in notebooks]
    less = [one["less"] for one in notebooks]
    everything = [one["experiments"] - one["less"] for one in notebooks]
    axes.barh(names, everything, color=style.GREEN, label="shows all it can")
    axes.barh(names, less, left=everything, color=style.ORANGE, hatch="//", edgecolor="white", label="runs, shows less")
    for place, one in enumerate(notebooks):
        if one["state"] == MISSING:
            remark = "cannot be started"
        else:
            remark = f"without {', '.join(one['lacks'])}" if one["lacks"] else ""
        axes.text(one["experiments"] + 0.1, place, remark, va="center")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="experiments", xlim=(0, 1.4 * max([one["experiments"] for one in notebooks], default=1)))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


@experiment("environment", lecture="L2 L1 L3", notebook=NOTEBOOK, draw=draw_environment)
def environment(size: Size) -> Result:
    """What this machine is, and what each notebook can show on it."""
    report = examine(device=str(size.device))
    # The doctor's process was told this device, so why it was chosen is known only here.
    chosen = f"{report['device'].value}; {size.device}: {size.device.reason}"
    rows = [
        {"what": one.name, "state": one.state, "found": chosen if one.name == "device" else one.value}
        for one in report.findings
    ]
    rows += [{"what": f"notebook {one.name}", "state": one.state, "found": one.value} for one in report.notebooks]
    versions = ", ".join(report[name].value for name in PARTNERS)
    limits = [one.name for one in report.findings if one.name in SETTINGS and one.state != OK]
    claims = [
        Claim("Python, torch and torchvision work together here", report.fits, versions),
        Claim(
            "every notebook can be started here",
            report.ready,
            f"{sum(one.state != MISSING for one in report.notebooks)} of {len(report.notebooks)}",
        ),
        Claim(
            "a Python process started from here computes on the same device",
            report["device"].value.startswith(f"{size.device},"),
            report["device"].value,
        ),
        Claim(
            "cores, memory, shared memory and disk leave room for every notebook",
            not limits,
            f"short: {', '.join(limits)}" if limits else f"{len(SETTINGS)} settings in order",
            exact=False,
        ),
        Claim("torch can use a CUDA GPU here", report["cuda"].state == OK, report["cuda"].value, exact=False),
    ]
    notes = [f"{one.name}: {one.fix}." for one in report.findings if one.fix]
    shown = [
        {"name": n.name, "state": n.state, "experiments": n.experiments, "less": n.less, "lacks": list(n.lacks)}
        for n in report.notebooks
    ]
    return Result(rows, claims, notes=notes, arrays={"notebooks": shown})
