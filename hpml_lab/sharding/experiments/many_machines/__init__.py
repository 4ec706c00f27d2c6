"""Two hosts under torchrun's agents: what the link between them costs, and what happens when one of them disappears.

The hosts are network namespaces with a link of chosen rate (`hosts`). Where a system does not allow them, both agents run
on one host: they meet, lose and resume in the same way, and only the links are missing.
"""

import contextlib
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from statistics import median

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.timeline import gantt
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.distributed import efficiency, fit_link, ring_seconds
from hpml_lab.sharding.experiments.many_machines.on_ranks import Plan, agent, gradient_bytes, train
from hpml_lab.sharding.tools.hosts import TwoHosts, two_hosts, why_no_hosts

MIB = 1 << 20
QUICK = dict(sizes={"": (4, 16), "1gbit": (4, 16), "100mbit": (1, 4)}, steps=6, steps_alone=2, wait_seconds=2.0, beat_seconds=1)
FULL = dict(
    sizes={"": (4, 16, 64), "10gbit": (16, 64), "1gbit": (4, 16, 64), "100mbit": (1, 4, 16)},
    steps=24,
    steps_alone=8,
    wait_seconds=10.0,
    beat_seconds=5,
)
# {rate in tc's words: (in ours, Mbit/s)}
RATES = {"": ("no limit", None), "10gbit": ("10 Gbit/s", 10_000), "1gbit": ("1 Gbit/s", 1_000), "100mbit": ("100 Mbit/s", 100)}
DEADLINE_SECONDS = 300.0
SAME = 1e-12  # relative difference of two float64 sums in another order
WAITS, MEETS, ALONE, OFF = "waits for the other host", "agent meets again", "trains alone", "without power"


@dataclass
class LinkRow(Row):
    """Training on two hosts over one link. `mbit` is its bus bandwidth: what one host sends per second."""

    link: str = column("link")
    rate_mbit: int | None = column("its rate", "Mbit/s")
    mbit: float = column("bandwidth found", "Mbit/s")
    compute_ms: float = column("compute of a step", "ms")
    predicted_ms: float = column("step predicted: compute + ring", "ms")
    step_ms: float = column("step measured", "ms")
    efficiency: float = column("efficiency", "%")


@dataclass
class LossRow(Row):
    """The minutes after the loss of a host, as spans."""

    lane: str
    what: str = column("after the loss")
    start: float = column("from", "s")
    end: float = column("to", "s")


# ---- running ----------------------------------------------------------------------------------------------------------------


def run_agents(plan: Plan, hosts: TwoHosts | None) -> None:
    """Run both agents until the first one, whose host stays, has finished. Raises LabError if one of them fails."""
    end = time.monotonic() + DEADLINE_SECONDS
    with agent(hosts, 0, plan) as first, agent(hosts, 1, plan) as second:
        while first.poll() is None:
            if second.poll() is not None and not plan.path("lost.json").exists():
                raise _failure(plan, 1, f"ended with exit code {second.returncode}")
            if time.monotonic() > end:
                raise _failure(plan, 0, f"did not finish within {DEADLINE_SECONDS:g} s")
            time.sleep(0.02)
    if first.returncode != 0:
        raise _failure(plan, 0, f"ended with exit code {first.returncode}")


def _failure(plan: Plan, host: int, how: str) -> LabError:
    report = plan.log(host).read_text(encoding="utf-8").strip()[-500:]
    return LabError(f"The agent of host {host} {how}: {report}", "Run it again on a machine with less load.")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- drawing ----------------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the time of a training step on two hosts over each link, split into compute and waiting for the gradients; the
    diamond is the alpha-beta model's prediction. Right: after host 1 has lost its power, host 0 waits, its agent meets those
    that are left, and its rank goes on alone."""
    rows, spans = result.rows(LinkRow), result.rows(LossRow)
    if not rows:
        return None
    figure = style.new_figure(11, 1.9 + 0.35 * len(rows))
    steps, after = figure.subplots(1, 2, width_ratios=(1.2, 1))
    names = [row.link for row in rows]
    compute = [min(row.compute_ms, row.step_ms) for row in rows]
    steps.barh(names, compute, color=style.BLUE, label="compute")
    waiting = [row.step_ms - part for row, part in zip(rows, compute, strict=True)]
    steps.barh(names, waiting, left=compute, color=style.ORANGE, hatch="///", edgecolor="white", label="waiting for gradients")
    predictions = [row.predicted_ms for row in rows]
    steps.plot(
        predictions, names, "D", color=style.INK, markersize=7, markeredgecolor="white", label="predicted", linestyle="none"
    )
    for index, row in enumerate(rows):
        steps.text(max(row.step_ms, row.predicted_ms), index, f"   {row.efficiency:.0f} %", va="center")
    steps.set(xlabel="one training step in ms; efficiency in %", ylabel="link between the hosts")
    steps.set_xlim(0, 1.2 * max(max(row.step_ms, row.predicted_ms) for row in rows))
    steps.invert_yaxis()
    steps.grid(axis="y", visible=False)
    steps.set_axisbelow(True)
    colors = {WAITS: style.ORANGE, MEETS: style.YELLOW, ALONE: style.BLUE, OFF: style.GREY}
    gantt(after, [vars(span) for span in spans], colors, lanes=("host 0", "host 1"))
    after.set_xlabel(f"{after.get_xlabel()} after host 1 was lost")
    for axes in (steps, after):
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
    return figure


# ---- the experiment ---------------------------------------------------------------------------------------------------------


@experiment("many-machines", lecture="own", notebook="14_sharding", draw=draw, quick=QUICK, full=FULL, uses=("namespaces",))
def many_machines(params: Params) -> Result:
    """Two machines: what their link costs, and what remains when one of them disappears."""
    if sys.platform != "linux":
        return Result(notes=["The two hosts need forks and network namespaces: run `hpml-lab run many-machines` on Linux."])
    whole, _ = train(range(params.steps), None)
    reason = why_no_hosts()
    sizes = {rate: [size * MIB for size in sizes] for rate, sizes in params.sizes.items() if not (reason and rate)}
    with tempfile.TemporaryDirectory(prefix="hpml-hosts-") as folder, contextlib.ExitStack() as stack:
        hosts = None if reason else stack.enter_context(two_hosts())
        endpoint = "host0:29500" if hosts else f"localhost:{free_port()}"
        times = (params.steps, params.steps_alone, params.wait_seconds, params.beat_seconds)
        plan = Plan(folder, sizes, hosts is not None, endpoint, *times)
        run_agents(plan, hosts)
        together, loss, alone = [plan.read("together0"), plan.read("together1")], plan.read("loss"), plan.read("alone")

    rows = [_link_row(rate, sizes[rate], together) for rate in sizes]
    result = Result([Table("One training step over each link", rows), Table("After the loss of host 1", _spans(loss, alone))])
    _claim_same_weights(result, plan, together, alone, whole)
    result.claim(
        "A rank whose partner is lost gets an error, and torchrun's agent starts it again, alone, from the snapshot",
        (alone["world"], alone["first"]) == (1, params.steps - params.steps_alone),
        f"a world of {alone['world']}, from step {alone['first']}",
    )
    result.key_figure("from the loss to the error", loss["seconds"], "s")
    result.key_figure("from the error to the new start", alone["began"] - loss["at"], "s")
    if hosts:
        _measure_links(result, rows)
        result.measured(
            "A host that goes silent is not noticed before the time-out of the group",
            loss["seconds"] >= params.wait_seconds,
            f"an error after {loss['seconds']:.2f} s; time-out {params.wait_seconds:g} s",
        )
    else:
        result.notes.append(f"Both agents ran on one host, over its loopback, and the second one was killed. {reason}")
    return result


def _claim_same_weights(result: Result, plan: Plan, together: list[dict], alone: dict, whole: torch.Tensor) -> None:
    middle, _ = train(range(plan.steps - plan.steps_alone), None)
    found = [torch.tensor(link["weights"], dtype=torch.float64) for host in together for link in host["links"].values()]
    result.claim(
        "Both hosts hold bitwise the same weights over every link, and they are those of one process, up to rounding",
        all(torch.equal(found[0], other) for other in found) and _difference(found[0], middle) <= SAME,
        "relative difference at most 1e-12",
    )
    final = torch.tensor(alone["weights"], dtype=torch.float64)
    result.claim(
        "The host that is left ends with the weights of a run in which nothing was lost, up to rounding",
        _difference(final, whole) <= SAME,
        "relative difference at most 1e-12",
    )


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def _measure_links(result: Result, rows: list[LinkRow]) -> None:
    limited = [row for row in rows if row.rate_mbit is not None]
    for row in limited:
        result.key_figure(f"bandwidth over {row.link}", row.mbit, "Mbit/s")
    result.measured(
        "Over each limited link the ring gets at least 85 % of the rate, and not more than all of it",
        all(0.85 * row.rate_mbit <= row.mbit <= row.rate_mbit for row in limited),
        ", ".join(f"{row.mbit:.4g} Mbit/s over {row.link}" for row in limited),
    )
    slowest = rows[-1]
    result.measured(
        f"Over {slowest.link} the alpha-beta model predicts the time of a step within 25 %",
        0.75 <= slowest.step_ms / slowest.predicted_ms <= 1.25,
        f"predicted {slowest.predicted_ms:.4g} ms, measured {slowest.step_ms:.4g} ms",
    )


def _link_row(rate: str, sizes: list[int], together: list[dict]) -> LinkRow:
    times = [max(pair) for pair in zip(*(host["links"][rate]["times"] for host in together), strict=True)]
    link = fit_link(2, sizes, times)
    compute = median(together[0]["compute"] + together[1]["compute"])
    step = median(together[0]["links"][rate]["steps"] + together[1]["links"][rate]["steps"])
    return LinkRow(
        link=RATES[rate][0],
        rate_mbit=RATES[rate][1],
        mbit=link.bandwidth * 8 / 1e6,
        compute_ms=compute * 1e3,
        predicted_ms=(compute + ring_seconds(2, gradient_bytes(), link)) * 1e3,
        step_ms=step * 1e3,
        efficiency=100 * efficiency(compute, max(0.0, step - compute)),
    )


def _spans(loss: dict, alone: dict) -> list[LossRow]:
    lost = loss["at"] - loss["seconds"]
    began, ended = alone["began"] - lost, alone["ended"] - lost
    return [
        LossRow("host 0", WAITS, 0.0, loss["seconds"]),
        LossRow("host 0", MEETS, loss["seconds"], began),
        LossRow("host 0", ALONE, began, ended),
        LossRow("host 1", OFF, 0.0, ended),
    ]
