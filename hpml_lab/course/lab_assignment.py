"""Labs 1, 2 and 6 for nbgrader: exercises with checks, what is measured on one's own, and questions answered in words.

A lab is one assignment of several notebooks: those of its exercises, and its own, with the report that `hpml-lab lab` writes or
the kernels that were measured, and the questions as task cells. With them goes a job file for a cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from hpml_lab.core.experiment.catalogue import notebook_file
from hpml_lab.core.system.errors import LabError
from hpml_lab.course.assignment import graded, marked, slim, write_once, write_source

JOB = """\
#!/bin/bash
#SBATCH --job-name=lab{number}
#SBATCH --output=%x-%j.out
#SBATCH --time=01:00:00
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
{gpus}# In the lab's folder, from the environment that has hpml-lab, which sbatch passes on: sbatch lab.sbatch
{commands}
"""
IMPORTS = "from hpml_lab.your_script import kernel_points, report_points"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
KERNELS = 6
KERNELS_STUB = """\
gb_per_s, gflop_per_s = ..., ...  # your machine's limits, on all its cores: `hpml_lab.core.ceiling("cpu", threads=8)`
measured = {
    # "numpy, 300,000,000": (bytes, FLOPs, seconds),
}"""
KERNELS_SOLUTION = """\
gb_per_s, gflop_per_s = 30, 200
sizes = {"C": 3e8, "C, unrolled": 3e8, "BLAS": 3e8, "Python": 1e6, "NumPy": 3e8, "torch": 3e8}
measured = {name: (8 * n, 2 * n, 0.1 + n / 3e9) for name, n in sizes.items()}"""
KERNELS_CHECK = """\
found = kernel_points(measured, gb_per_s=gb_per_s, gflop_per_s=gflop_per_s, intensity=2 / 8, at_least={kernels})
print(found)
found.points"""
REPORT_CHECK = """\
found = report_points(".", steps={steps!r})
print(found)
found.points"""


@dataclass(frozen=True)
class LabQuestion:
    """A question that is answered in words. The scheme, which says what earns points, is not handed out."""

    name: str
    points: int
    text: str
    scheme: str


@dataclass(frozen=True)
class LabSheet:
    """What is handed out for one lab.

    exercises  {notebook: names of its exercises}
    steps      those of `hpml-lab lab` that the report has to have; without any, kernels are measured by hand
    commands   of the job file
    gpus       that the job asks for
    """

    title: str
    text: str
    exercises: dict[str, Sequence[str]]
    questions: Sequence[LabQuestion]
    commands: Sequence[str]
    steps: Sequence[str] = ()
    gpus: int = 0


STEPS_TEXT = """
Before each step, write down what you expect of it, and afterwards what you make of it; then run the cell below. Each step gives
one point for the measurement and one for both sentences.

```
hpml-lab lab --out . --predict parts "it waits for a third of the time" lab_training.py --quick
hpml-lab lab --out . --steps parts lab_training.py --quick
hpml-lab lab --out . --explain parts "more than I thought: …" lab_training.py --quick
```

Write the same words from the script's name on each time, and `--out .` in each command: the report, `report.json`, lies beside
this notebook then, and is handed in with it. On a cluster `lab.sbatch` runs the steps, with the same words in its line
`script=`; predictions and sentences may be written on the login node. With a GPU leave `--quick` out, in all of them.
"""
COMMANDS = ['script="lab_training.py --quick"', "hpml-lab doctor", "hpml-lab lab --out . --seconds 300 --steps {steps} $script"]
LABS = {
    1: LabSheet(
        "Lab 1: a dot product, and a roofline",
        """\
Write the dot product of two vectors of float32 numbers as a loop in C, the same loop unrolled by four, with BLAS, as a loop in
Python, with NumPy and with torch. Time each for N = 1,000,000 and, where it ends within a minute, for N = 300,000,000. Section
`dot-product` of notebook 01 shows what to expect. The code is to be yours: put it into files beside this notebook, which are
handed in with it, and only figures into the cell below: the notebook is executed again, elsewhere, when it is graded.

Fill in six kernels or more, and draw them, by `roofline({"my kernel": (FLOP/byte, GFLOP/s)})` of `hpml_lab.tensors`. What is
faster than your machine's limits allow gets no point.
""",
        {"01_tensors": ["matmul-intensity"]},
        [
            LabQuestion(
                "repeats",
                2,
                "How many repeats did you leave out, which average did you take of the others, and why?",
                "The first ones: pages, caches, clocks. Rates: the harmonic mean, or the rate of the median time.",
            ),
            LabQuestion(
                "intensity",
                2,
                "How many FLOPs and bytes does one element take? From which bandwidth on would arithmetic be the limit on your "
                "machine?",
                "2 FLOPs and 8 bytes: 0.25 FLOP/byte. From peak / 0.25, four bytes for each FLOP/s.",
            ),
            LabQuestion(
                "unrolled",
                3,
                "What does unrolling gain at either size, and what does BLAS gain beyond it? Say why.",
                "One sum is a chain of dependent additions; several sums break it. At 300,000,000 memory is the limit of all.",
            ),
            LabQuestion(
                "ones",
                3,
                "The dot product of two vectors of 300,000,000 ones is 16,777,216 in one of your loops. In which, why, and "
                "what do NumPy and BLAS give?",
                "2²⁴ + 1 is no float32, and is rounded to 2²⁴. Several or pairwise sums stay far below it for longer.",
            ),
        ],
        ["hpml-lab doctor", "hpml-lab run dot-product --size full"],
    ),
    2: LabSheet(
        "Lab 2: a network, its loader and its optimizer",
        "Start from `hpml-lab template --of lab .`, a ResNet-18 for pictures of 32 × 32, or bring a script that prints the "
        "same line for each epoch and takes the same options: `--seed`, `--optimizer`, `--lr`, `--norm`, `--dropout`, "
        "`--device` and, for lab 6, `--schedule` and `--batch`, which counts the samples of all ranks. With CIFAR-10's binary "
        "files: `--data cifar-10-batches-bin`.\n" + STEPS_TEXT,
        {"03_nets": ["training-loop", "count-a-convolution"], "10_profiling": ["predict-the-gain"]},
        [
            LabQuestion(
                "workers",
                3,
                "Run the script with `--workers 1` and with the best number, and compare: which part of an epoch became "
                "shorter, and why is there no further gain?",
                "Waiting for batches; the loader then keeps up, or the cores are used up. A figure of the report for each.",
            ),
            LabQuestion(
                "optimizers",
                3,
                "Which optimizer learns most at one rate, and which at its own? Which of the differences are larger than what "
                "another seed changes?",
                "The report's differences against the limit of step `seeds`; at one rate it is the rate that is compared.",
            ),
            LabQuestion(
                "norms",
                2,
                "What does it cost to leave out batch norm, and what does dropout add?",
                "As measured, against the seeds. Without batch norm the same rate can be too large.",
            ),
            LabQuestion(
                "counted",
                2,
                "How many layers, trained parameters and gradients has the net, and which stage has most of the parameters?",
                "`nets.layer_costs(net, x)`; as many gradients as trained parameters. The last stage: channels squared.",
            ),
        ],
        COMMANDS,
        ("parts", "workers", "profile", "devices", "seeds", "optimizers", "norms", "precision"),
        gpus=1,
    ),
    6: LabSheet(
        "Lab 6: several GPUs",
        "The script of lab 2, on 1, 2 and 4 ranks. Where there are no GPUs the ranks share the cores: say what that changes.\n"
        + STEPS_TEXT,
        {"13_distributed": ["average-uneven-shards", "ranks-at-half", "staleness"]},
        [
            LabQuestion(
                "split",
                4,
                "Step `split`, on GPUs 1, 2 and 4 ranks with 32, 128 and 512 on each, otherwise 1 and 2 with 4 and 16: where "
                "does communication matter most, and why there?",
                "Small batches: the gradients are as many bytes whatever the batch.",
            ),
            LabQuestion(
                "bandwidth",
                3,
                "How many bytes does each rank send in a ring all-reduce of your gradients, and which share of the link's "
                "bandwidth do you reach?",
                "2 (N − 1) / N times the bytes of the gradients, over the time that takes; the link's from its data sheet.",
            ),
            LabQuestion(
                "scaling",
                2,
                "Compare strong with weak scaling. Which would you quote, and for what?",
                "Weak: more data in the same time. Strong: the same training sooner, which ends when batches become small.",
            ),
            LabQuestion(
                "epochs",
                2,
                "What happens without `set_epoch`, and what else than gradients do ranks send?",
                "Every epoch has the same order. The buffers of batch norm, from rank 0, before each forward pass.",
            ),
            LabQuestion(
                "large-batch",
                3,
                "Four ranks with a batch of 512 each: how far does the accuracy fall, and what helps?",
                "Fewer steps; linear scaling of the rate with a warm-up, or LARS. Differences against the seeds.",
            ),
        ],
        COMMANDS,
        ("parts", "seeds", "schedules", "ranks", "split"),
        gpus=4,
    ),
}


def lab_sheet(number: int) -> LabSheet:
    """What is handed out for a lab. Raises LabError for one that is not here."""
    if number not in LABS:
        raise LabError(f"lab {number} is not here.", f"Choose one of {', '.join(map(str, LABS))}; docs/labs.md has the others.")
    return LABS[number]


def write_lab(number: int, course: Path) -> list[Path]:
    """Write `source/lab<number>/` of an nbgrader course: the lab's notebook, those of its exercises, and a job file.

    Raises LabError for a lab that is not here, and for a file that is there with another content.
    """
    sheet = lab_sheet(number)
    name = f"lab{number}"
    written = [write_source(course, name, name, lab_notebook(sheet))]
    for notebook, exercises in sheet.exercises.items():
        made = nbformat.read(notebook_file(notebook), as_version=4)
        slim(made, exercises)
        written.append(write_source(course, name, notebook, made))
    return [*written, write_once(written[0].parent / "lab.sbatch", job_file(number, sheet))]


def job_file(number: int, sheet: LabSheet) -> str:
    """What `sbatch` takes."""
    gpus = f"#SBATCH --gpus-per-node={sheet.gpus}\n" if sheet.gpus else ""
    commands = "\n".join(sheet.commands).format(steps=",".join(sheet.steps))
    return JOB.format(number=number, gpus=gpus, commands=commands)


def lab_notebook(sheet: LabSheet) -> nbformat.NotebookNode:
    """What is measured, its check, and the questions; each with a cell for the answer behind it."""
    cells = [new_markdown_cell(f"# {sheet.title}\n\n{sheet.text.strip()}", id="lab"), new_code_cell(IMPORTS, id="imports")]
    if sheet.steps:
        check, points = REPORT_CHECK.format(steps=tuple(sheet.steps)), 2 * len(sheet.steps)
    else:
        stub = f"{KERNELS_STUB}\n{marked(KERNELS_SOLUTION)}"
        cells.append(new_code_cell(stub, id="kernels", metadata=graded("kernels", solution=True)))
        check, points = KERNELS_CHECK.format(kernels=KERNELS), KERNELS
    of_the_check = graded("measured", grade=True, locked=True, points=points)
    cells.append(new_code_cell(check, id="measured", metadata=of_the_check))
    for question in sheet.questions:
        scheme = f"=== BEGIN MARK SCHEME ===\n{question.scheme}\n=== END MARK SCHEME ==="
        text = f"### Question ({question.points} points)\n\n{question.text}\n\n{scheme}"
        of_the_task = graded(question.name, task=True, locked=True, points=question.points)
        cells.append(new_markdown_cell(text, id=question.name, metadata=of_the_task))
        cells.append(new_markdown_cell("*Your answer:*", id=f"{question.name}-answer"))
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
