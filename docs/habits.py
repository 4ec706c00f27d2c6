"""Forty habits on one page: what each gains in the stored runs and in the recorded ones, and if results stay the same.

Only the habit and when it applies are written here. Every figure is read from the card of its experiment, its interval from a
measured claim there, every answer to "same results?" from an exact claim of the recorded run.
"""

import html
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

REFERENCE = Path(__file__).resolve().parents[1] / "data" / "reference"
BOUND = re.compile(r"within|\b1e-\d+|\bas close to")
# A ratio with its interval, as claims write it: "1.8× faster (1.7 to 1.9; noise ±2 %)", "4.5× (4.2 to 4.7; faster)",
# "6.2 (6.1 to 6.3)", "1.4 (1.3 to 1.5): faster".
COMPARISON = re.compile(r"([\d.]+)×?(?: faster| slower)? \([^()]* to [^()]*\)(?:: \w+)?")
ROUNDED = 0.006  # of a ratio, where claims write three digits
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
    """A habit, when it applies, its experiment, the label of the key figure that says its gain, and words of two claims.

    same   begins the exact claim that says that results stay the same; "" where nothing is claimed
    claim  begins the measured claim that has the interval of a key figure that is a number alone
    """

    what: str
    when: str
    slug: str
    figure: str
    same: str = ""
    claim: str = ""


HABITS = (
    Habit("load with workers", "samples wait for a disk", "num-workers", "8 workers", claim="4 workers are faster than none"),
    Habit(
        "load one batch ahead",
        "loading and computing take turns",
        "prefetch",
        "one thread ahead",
        claim="One thread ahead is faster",
    ),
    Habit(
        "pinned memory",
        "batches are copied to a GPU",
        "pinned-memory",
        "pinned over pageable",
        claim="The largest copy is faster",
    ),
    Habit(
        "copy the next batch ahead",
        "copies wait for steps",
        "gpu-prefetcher",
        "copying ahead",
        "Both schedules give the same",
        claim="Copying ahead makes the loop faster",
    ),
    Habit(
        "overlap I/O and computing", "both take long", "io-vs-compute", "overlap, measured", claim="Overlap gains at least half"
    ),
    Habit(
        "buckets of equal lengths",
        "sentences on several ranks",
        "load-balance",
        "buckets over all ranks, measured",
        claim="Buckets over all ranks train more",
    ),
    Habit(
        "several slots between two stages",
        "work is uneven",
        "producer-consumer",
        "uneven work, more slots compared with one",
        claim="With uneven work, more slots",
    ),
    Habit(
        "threads for Python", "never: the lock is held", "gil", "Python loop on 2 threads", claim="Two threads do not speed up"
    ),
    Habit("processes for Python", "a loop computes", "gil", "Python loop on 2 processes", claim="Two processes speed up"),
    Habit(
        "threads for what leaves the lock",
        "hashes, NumPy, torch",
        "gil",
        "hashlib.sha256 on 2 threads",
        claim="Two threads speed up what releases",
    ),
    Habit(
        "handles in place of pickle",
        "large tensors in a queue",
        "tensor-queues",
        "handles over pickle at the largest size",
        claim="At the largest size handles",
    ),
    Habit(
        "handles for small tensors",
        "never: the handle costs more",
        "tensor-queues",
        "handles over pickle at the smallest size",
        claim="At the smallest size a handle",
    ),
    Habit(
        "reuse shared tensors",
        "a queue of equal shapes",
        "tensor-queues",
        "reused over new tensors at the largest size",
        claim="At the largest size buffers",
    ),
    Habit(
        "spawn in place of fork",
        "a GPU or threads are in use",
        "start-methods",
        "spawn compared with fork",
        claim="Forkserver and spawn are slower",
    ),
    Habit(
        "several jobs on one device",
        "each leaves it idle",
        "shared-gpu",
        "4 processes at once, speed-up over in turn",
        "Sharing",
        claim="4 processes at once finish sooner",
    ),
    Habit(
        "profile, change, assess",
        "always, and first",
        "profile-loop",
        "slow trainer / best trainer",
        "Changes that keep every",
        claim="The best trainer is",
    ),
    Habit(
        "no exceptions in a hot loop",
        "the profiler shows them",
        "slow-causes",
        "exceptions: slow / fast",
        "The slow and the fast",
        claim="Asking first is faster",
    ),
    Habit(
        "go through memory in order",
        "arrays are large",
        "slow-causes",
        "traversal: slow / fast",
        "The slow and the fast",
        claim="Sums along the order",
    ),
    Habit("a profiler left on", "never", "torch-profiler", "step under the profiler: left on"),
    Habit(
        "NumPy in place of a loop",
        "numbers in lists",
        "dot-product",
        "NumPy over a loop of Python",
        claim="NumPy is faster than a loop",
    ),
    Habit("gradients to None", "always", "zero-grad", "whole step with None", "All ways train to bitwise"),
    Habit(
        "foreach optimizer",
        "many tensors",
        "fused-optimizers",
        "many tensors, foreach over the for-loop",
        "All implementations",
    ),
    Habit(
        "fused optimizer",
        "many tensors",
        "fused-optimizers",
        "many tensors, fused over the for-loop",
        "All implementations",
        claim="fused is faster than the for-loop",
    ),
    Habit("channels last, float32", "convolutions", "channels-last", "step in NHWC, float32", "Both layouts give the same"),
    Habit("channels last, bfloat16", "convolutions", "channels-last", "step in NHWC, bfloat16", "Both layouts give the same"),
    Habit(
        "cuDNN's search",
        "shapes stay",
        "cudnn-benchmark",
        "forward, float32, TF32",
        "A convolution, directly",
        claim="The search makes the",
    ),
    Habit("no bias before batch norm", "always", "conv-bias-bn", "step without bias", "In training, both networks"),
    Habit(
        "fuse pointwise operators",
        "torch.compile works",
        "pointwise-fusion",
        "1 M elements, fused over formula",
        "Every implementation",
        claim="With 1,000,000 elements, one kernel",
    ),
    Habit(
        "nn.LayerNorm",
        "not composed by hand",
        "fused-layernorm",
        "nn.LayerNorm over the composition",
        "Outputs and gradients",
        claim="torch's layer norm is faster",
    ),
    Habit(
        "scaled_dot_product_attention",
        "attention",
        "attention-kernels",
        "SDPA's fastest kernel over composed",
        "Every implementation",
    ),
    Habit(
        "compile the net",
        "shapes and branches stay",
        "dynamic-graph",
        "compiled call, speed-up over an eager one",
        claim="A compiled call is faster",
    ),
    Habit(
        "all switches at once",
        "gains do not multiply",
        "all-switches",
        "all but checkpointing, speed-up",
        "No switch changes a loss",
        claim="All switches but checkpointing",
    ),
    Habit(
        "16 bits, autocast",
        "matrix units",
        "amp-training",
        "AMP over torch's default, fp32 with TF32 in convolutions",
        "The first losses of all loops",
        claim="AMP is faster than fp32",
    ),
    Habit("sizes in multiples of 8", "matrix units", "gemm-tensor-cores", "multiples of 8 over the sizes between"),
    Habit(
        "DDP",
        "several devices",
        "dp-vs-ddp",
        "many small layers, DDP, 2 replicas",
        "With equal shares both give",
        claim="With many small layers, DDP is ahead",
    ),
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


def gain(cell: str, figure: str, measured: str = "") -> str:
    """What a cell of a card says of a gain: an interval as it stands, and of a number that of `measured`, if it has this ratio.

    Of a number that has none nothing says if it is more than noise: no verdict either.
    """
    number = cell.replace("\N{NO-BREAK SPACE}", "").replace("\N{NARROW NO-BREAK SPACE}", "").replace(" ", "")
    if not re.fullmatch(r"[\d.]+", number):
        return cell
    slower = figure.endswith("slower")
    ratios = [float(number), *([1 / float(number)] if slower else [])]  # a claim has a slowdown as a speed-up below 1, too
    for found in COMPARISON.finditer(measured):
        if any(math.isclose(float(found[1]), ratio, rel_tol=ROUNDED) for ratio in ratios):
            return found[0] if "×" in found[0] else found[0].replace(" ", "× as fast ", 1)
    return f"{cell}× as {'long' if slower else 'fast'}"


def measured_in(claims: str, habit: Habit) -> str:
    """The figures of the habit's measured claim in a card's HTML; "" where it has none."""
    return "; ".join(re.findall(rf"> ?{re.escape(habit.claim)}[^<]*<code>(.*?)</code>", claims)) if habit.claim else ""


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
        ours, _, theirs = html.unescape(example.card).partition(">Recorded run")
        device = example.found(r">reference[^<]*?: (?:NVIDIA|AMD|Intel\(R\)) (\w+)[^<]*? \(torch")
        row = (
            f"[{habit.what}](#{example.link})",
            habit.when,
            gain(here, label, measured_in(ours, habit)),
            gain(recorded, label, measured_in(theirs, habit)),
            device,
            same_results(habit),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(
        [
            "# Forty habits, in numbers",
            "",
            "What the lectures advise, and what it gained: *here*, on a CPU at quick size, and *recorded*, at full"
            " size. A gain has its interval, and the noise of its run; *within noise* and *less than 2 %* are no gain, and"
            " *1.1× as fast*, without an interval, is what one run took: it may be noise. *Same results?* is an"
            " exact claim of the recorded run: bitwise, or nearly, within its bound; a dash: nothing is claimed.",
            "",
            "```{table}",
            ":class: habits",
            *lines,
            "```",
            "",
        ]
    )
