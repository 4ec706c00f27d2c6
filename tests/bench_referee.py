"""What the referee says of scripts that train the same, and of changes that alter a training: `make bench`.

    python tests/bench_referee.py [scripts] [habits] [repeats] [programs …]

Each script, drawn by its number, is compared with itself under other names, and with some habits that alter the training.
A false alarm is a difference in speed that is claimed of the first, or a class other than bitwise; a habit is missed where its
class is one that is allowed. At a load, other programs compute meanwhile. The whole table: 300 60 3 1 20.
"""

import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench_clock import busy

from hpml_lab.core.timing.noise import CLAIMED, wilson
from hpml_lab.referee.sameness import ALLOWED, BITWISE
from hpml_lab.referee.script_turns import Candidate, Compared, Yardstick, compared

SCRIPTS, HABITS, REPEATS, PROGRAMS = 10, 10, 1, (1,)
TEXT = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed({seed})
torch.set_num_threads(1)
x = torch.randn(500, 1, 8, 8)
y = (x.flatten(1) @ torch.randn(64, 10)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size={batch}, shuffle=True)
net = nn.Sequential({layers}, nn.Linear({width}, 10))
optimizer = torch.optim.{optimizer}
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
net.train()
while True:
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        schedule.step()
"""
LAYERS = [
    ("nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.2)", 96),
    ("nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1)", 288),
    ("nn.Flatten(), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.3)", 64),
]
OPTIMIZERS = [
    "SGD(net.parameters(), lr=0.05, momentum=0.9)",
    "Adam(net.parameters(), lr=0.002)",
    "AdamW(net.parameters(), lr=0.003)",
    "RMSprop(net.parameters(), lr=0.001)",
]
CLIP = "        nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n"
ALTERED = {  # {habit: (what stands in the script, what comes in its place)}
    "samples in order": ("shuffle=True", "shuffle=False"),
    "samples in another random order": ("net.train()", "net.train(); torch.randperm(500)"),
    "the last batch left out": ("shuffle=True", "shuffle=True, drop_last=True"),
    "half of each batch": ("net(images), labels", "net(images[::2]), labels[::2]"),
    "gradients that add up": ("        optimizer.zero_grad()\n", ""),
    "no dropout": ("net.train()", "net.eval()"),
    "less dropout": ("nn.Dropout(", "nn.Dropout(0.9 * "),
    "a larger rate": ("lr=", "lr=1.1 * "),
    "eps moved": ("lr=0.00", "eps=1e-5, lr=0.00"),  # of Adam and its like
    "weight decay": ("lr=", "weight_decay=0.05, lr="),
    "less momentum": ("momentum=0.9", "momentum=0.85"),
    "a mean taken twice": ("loss.backward()", "(loss / len(images)).backward()"),
    "a sum for a mean": ("labels)\n", "labels, reduction='sum')\n"),
    "smoothed labels": ("labels)\n", "labels, label_smoothing=0.05)\n"),
    "no clipping": (CLIP, ""),
    "clipping behind the step": (f"{CLIP}        optimizer.step()\n", f"        optimizer.step()\n{CLIP}"),
    "a schedule twice as fast": ("schedule.step()", "schedule.step(); schedule.step()"),
    "a frozen layer": ("optimizer =", "net[-1].weight.requires_grad_(False)\noptimizer ="),
    "other initial weights": ("optimizer =", "nn.init.xavier_uniform_(net[-1].weight)\noptimizer ="),
    "mirrored images": ("net(images", "net(images.flip(-1)"),  # scaled ones are the same behind a batch norm
}


def script(number: int) -> str:
    """The text of a script."""
    drawn = random.Random(number)
    layers, width = drawn.choice(LAYERS)
    batch, optimizer = drawn.choice([16, 24, 32]), drawn.choice(OPTIMIZERS)
    return TEXT.format(seed=number, batch=batch, layers=layers, width=width, optimizer=optimizer)


def planted(text: str, number: int) -> tuple[str, str]:
    """The name of a habit that fits the script, and the script with it."""
    first = number % len(ALTERED)
    for name, (old, new) in [*ALTERED.items()][first:] + [*ALTERED.items()]:
        if old in text:
            return name, text.replace(old, new)
    raise ValueError(text)


def shown(folder: Path, number: int, habits: list[int]) -> dict[str, Compared]:
    """What a script shows against itself under other names ("same"), and against itself with each habit, by its name."""
    text = script(number)
    texts = {
        "same": text.replace("loss", "cost").replace("images", "pictures"),
        **dict(planted(text, habit) for habit in habits),
    }
    several = []
    for name, each in {"before": text, **texts}.items():
        path = folder / f"{name.replace(' ', '_')}.py"
        path.write_text(each, encoding="utf-8")
        several.append(Candidate(name, [str(path)]))
    return compared(several[1:], Yardstick(several[0], 600.0))


def table(scripts: int, habits: int, repeats: int, programs: int) -> None:
    """Print false alarms, and habits found and missed, at one load."""
    start, classes, claimed, missed = time.monotonic(), defaultdict(set), [], []
    with tempfile.TemporaryDirectory() as folder, busy(programs - 1):
        for number in [*range(scripts)] * repeats:
            for name, found in shown(Path(folder), number, [*range(number, habits, scripts)]).items():
                same = found.same.kind if found.same else found.failed
                classes[number, name].add(same)
                if name == "same" and (same != BITWISE or found.gain.verdict in CLAIMED):
                    claimed.append(f"script {number}: {found.gain}; {found.same or found.failed}")
                if name != "same" and (found.same is None or same in ALLOWED["rounding"]):
                    missed.append(f"script {number}, {name}: {found.same or found.failed}")
    of_same, of_habits = scripts * repeats, repeats * sum(name != "same" for _, name in classes)
    low, high = wilson(len(claimed), of_same)
    unlike = sum(len(kinds) > 1 for kinds in classes.values())
    print(f"{programs} programs at once: {(time.monotonic() - start) / of_same:.0f} s a script")
    print(f"    false alarms {len(claimed)} of {of_same} ({abs(low):.1%} to {high:.1%})")
    print(f"    habits found {of_habits - len(missed)} of {of_habits}, another class in a repeat {unlike} of {len(classes)}")
    for line in [*claimed, *missed]:
        print(f"    {line}")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    counts = [*given[:3], *(SCRIPTS, HABITS, REPEATS)[len(given[:3]) :]]
    for load in given[3:] or PROGRAMS:
        table(*counts, load)
