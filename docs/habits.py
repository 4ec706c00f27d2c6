"""Forty habits on one page: what each gains in the stored runs and in the recorded ones, and if results stay the same.

Only the habit and when it applies are written here. Every figure is read from the card of its experiment, every answer to "same
results?" from an exact claim of the recorded run.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

REFERENCE = Path(__file__).resolve().parents[1] / "data" / "reference"
BOUND = re.compile(r"within|\b1e-\d+|\bas close to")
LEAST = 1.02  # a gain below it is none, as in the experiments
# What a card writes behind the label of a ratio.
UNITS = (
    "",
    ", speed-up",
    ", times",
    ", times slower",
    ", times the words per second",
    ", times one process's samples per second",
)


class Habit(NamedTuple):
    """A habit, when it applies, its experiment, the label of the key figure that says its gain, and words of an exact claim.

    same  begins the claim that says that results stay the same; "" where nothing is claimed
    """

    what: str
    when: str
    slug: str
    figure: str
    same: str = ""


HABITS = (
    Habit("load with workers", "samples wait for a disk", "num-workers", "8 workers"),
    Habit(
        "load one batch ahead", "loading and computing take turns", "prefetch", "one thread ahead", "Every way gives the same"
    ),
    Habit("pinned memory", "batches are copied to a GPU", "pinned-memory", "pinned over pageable"),
    Habit(
        "copy the next batch ahead", "copies wait for steps", "gpu-prefetcher", "copying ahead", "Both schedules give the same"
    ),
    Habit("overlap I/O and computing", "both take long", "io-vs-compute", "overlap, measured"),
    Habit("buckets of equal lengths", "sentences on several ranks", "load-balance", "buckets over all ranks, measured"),
    Habit(
        "several slots between two stages", "work is uneven", "producer-consumer", "uneven work, more slots compared with one"
    ),
    Habit("threads for Python", "never: the lock is held", "gil", "Python loop on 2 threads"),
    Habit("processes for Python", "a loop computes", "gil", "Python loop on 2 processes"),
    Habit("threads for what leaves the lock", "hashes, NumPy, torch", "gil", "hashlib.sha256 on 2 threads"),
    Habit("handles in place of pickle", "large tensors in a queue", "tensor-queues", "handles over pickle at the largest size"),
    Habit(
        "handles for small tensors", "never: the handle costs more", "tensor-queues", "handles over pickle at the smallest size"
    ),
    Habit("reuse shared tensors", "a queue of equal shapes", "tensor-queues", "reused over new tensors at the largest size"),
    Habit("spawn in place of fork", "a GPU or threads are in use", "start-methods", "spawn compared with fork"),
    Habit(
        "several jobs on one device",
        "each leaves it idle",
        "shared-gpu",
        "4 processes at once, speed-up over in turn",
        "Sharing",
    ),
    Habit(
        "profile, change, assess", "always, and first", "profile-loop", "slow trainer / best trainer", "Changes that keep every"
    ),
    Habit(
        "no exceptions in a hot loop",
        "the profiler shows them",
        "slow-causes",
        "exceptions: slow / fast",
        "The slow and the fast",
    ),
    Habit("go through memory in order", "arrays are large", "slow-causes", "traversal: slow / fast", "The slow and the fast"),
    Habit("a profiler left on", "never", "torch-profiler", "step under the profiler: left on"),
    Habit("NumPy in place of a loop", "numbers in lists", "dot-product", "NumPy over a loop of Python"),
    Habit("gradients to None", "always", "zero-grad", "whole step with None", "All ways train to bitwise"),
    Habit(
        "foreach optimizer",
        "many tensors",
        "fused-optimizers",
        "many tensors, foreach over the for-loop",
        "All implementations",
    ),
    Habit(
        "fused optimizer", "many tensors", "fused-optimizers", "many tensors, fused over the for-loop", "All implementations"
    ),
    Habit("channels last, float32", "convolutions", "channels-last", "step in NHWC, float32", "Both layouts give the same"),
    Habit("channels last, bfloat16", "convolutions", "channels-last", "step in NHWC, bfloat16", "Both layouts give the same"),
    Habit("cuDNN's search", "shapes stay", "cudnn-benchmark", "forward, float32, TF32", "A convolution, directly"),
    Habit("no bias before batch norm", "always", "conv-bias-bn", "step without bias", "In training, both networks"),
    Habit(
        "fuse pointwise operators",
        "torch.compile works",
        "pointwise-fusion",
        "1 M elements, fused over formula",
        "Every implementation",
    ),
    Habit(
        "nn.LayerNorm", "not composed by hand", "fused-layernorm", "nn.LayerNorm over the composition", "Outputs and gradients"
    ),
    Habit(
        "scaled_dot_product_attention",
        "attention",
        "attention-kernels",
        "SDPA's fastest kernel over composed",
        "Every implementation",
    ),
    Habit("compile the net", "shapes and branches stay", "dynamic-graph", "compiled call, speed-up over an eager one"),
    Habit(
        "all switches at once",
        "gains do not multiply",
        "all-switches",
        "all but checkpointing, speed-up",
        "No switch changes a loss",
    ),
    Habit(
        "16 bits, autocast",
        "matrix units",
        "amp-training",
        "AMP over torch's default, fp32 with TF32 in convolutions",
        "The first losses of all loops",
    ),
    Habit("sizes in multiples of 8", "matrix units", "gemm-tensor-cores", "multiples of 8 over the sizes between"),
    Habit("DDP", "several devices", "dp-vs-ddp", "many small layers, DDP, 2 replicas", "With equal shares both give"),
    Habit("overlap the all-reduce", "links are slow", "gradient-aggregation", "overlap, balanced link", "On 2, 3 and 4 ranks"),
    Habit(
        "SyncBatchNorm", "few samples a rank", "sync-batch-norm", "a step with four SyncBatchNorms", "SyncBatchNorm on several"
    ),
    Habit(
        "int8 convolutions",
        "inference",
        "pt2e-inductor",
        "five convolutions: int8 compared with float32, both compiled and frozen",
    ),
    Habit("dynamic int8", "convolutions: it leaves them", "dynamic-quantization", "ResNet-18 after the call"),
    Habit("take channels out", "half of them are pruned", "sparse-formats", "ResNet-18, half of its channels taken out"),
)


def gain(cell: str, figure: str) -> str:
    """What a cell of a card says of a gain: an interval as it stands, a number with its direction, and that there is none."""
    number = cell.replace("\N{NO-BREAK SPACE}", "").replace("\N{NARROW NO-BREAK SPACE}", "").replace(" ", "")
    if not re.fullmatch(r"[\d.]+", number):
        return cell
    if figure.endswith("slower"):
        return f"{cell}× slower"
    if float(number) * LEAST <= 1:
        return f"slower ({cell}×)"
    return f"{cell}× faster" if float(number) >= LEAST else f"no gain ({cell}×)"


def same_results(habit: Habit) -> str:
    """What the recorded run's exact claim says: bitwise, nearly (within a bound) or the same; a dash where there is none."""
    if not habit.same:
        return "–"
    claims = json.loads((REFERENCE / f"{habit.slug}.json").read_text(encoding="utf-8"))["claims"]
    [claim] = [claim for claim in claims if claim["exact"] and claim["text"].startswith(habit.same)]
    if not claim["holds"]:
        return "no"
    if re.search("bitwise|last bit", claim["text"]):
        return "bitwise"
    return "nearly" if BOUND.search(claim["text"]) else "yes"


def habits_page(examples: Sequence[Any]) -> str:
    """The page, from the cards of the examples of `docs/build.py`."""
    by_slug = {example.slug: example for example in examples}
    lines = ["| habit | when | here | recorded | on | same results? |", "|---|---|---|---|---|---|"]
    for habit in HABITS:
        example = by_slug[habit.slug]
        [(label, _, here, recorded)] = [
            row for row in example.key_figures() if row[0] in {habit.figure + unit for unit in UNITS}
        ]
        device = example.found(r">reference[^<]*?: (?:NVIDIA|AMD|Intel\(R\)) (\w+)[^<]*? \(torch")
        row = (
            f"[{habit.what}](#{example.link})",
            habit.when,
            gain(here, label),
            gain(recorded, label),
            device,
            same_results(habit),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(
        [
            "# Forty habits, in numbers",
            "",
            "What the lectures advise, and what it gained: *here*, on a CPU at quick size, and *recorded*, at full"
            " size. A gain has its interval where one was measured; some habits gain nothing. *Same results?* is an"
            " exact claim of the recorded run: bitwise, or nearly, within its bound; a dash: nothing is claimed.",
            "",
            "```{table}",
            ":class: habits",
            *lines,
            "```",
            "",
        ]
    )
