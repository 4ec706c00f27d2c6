"""Loops whose bound is known, to judge the classifier by: input, processor, a single thread, a lock, and undecidable ones."""

import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.util import get_temp_dir

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from hpml_lab.core.system.children import shield_children_from_sigint
from hpml_lab.profiling.lessons.bottleneck import CANNOT_TELL

BLOCK = bytes(1 << 18)  # hashing it takes a few tenths of a millisecond without the interpreter's lock
FEATURES = 64  # features of a sample


@dataclass(frozen=True)
class KnownLoop:
    """A loop and its true bound. Called with seconds, `loop` returns a function that runs for about as long."""

    name: str
    truth: str
    loop: Callable[[float], Callable[[], object]]


def repeat_for(seconds: float, work: Callable[[], object]) -> None:
    """Call `work()` again and again for about so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        work()


def spin(seconds: float) -> None:
    """Pure Python for about so long: one thread, the interpreter's lock held."""
    repeat_for(seconds, int)


def hash_for(seconds: float) -> None:
    """Hash for about so long: one thread, without the interpreter's lock."""
    repeat_for(seconds, lambda: hashlib.sha256(BLOCK).digest())


class SlowSamples(Dataset):
    """`count` samples, each of which takes `seconds` of `work`: time.sleep is a slow storage, spin a slow transform."""

    def __init__(self, count: int, seconds: float, work: Callable[[float], object]) -> None:
        self.count, self.seconds, self.work = count, seconds, work

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.work(self.seconds)
        return torch.full((FEATURES,), float(index))


def training_step() -> Callable[[torch.Tensor], None]:
    """One step of a small net on a batch: well under a millisecond."""
    net = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))

    def step(batch: torch.Tensor) -> None:
        loss = net(batch).square().mean()
        loss.backward()
        for weight in net.parameters():
            weight.data -= 1e-4 * weight.grad
            weight.grad = None

    return step


def _loader(workers: int, work: Callable[[float], object], each: float) -> Callable[[float], Callable[[], object]]:
    """A plain training loop over a DataLoader of 4 samples a batch; `each` is the seconds of a sample."""

    def make(seconds: float) -> Callable[[], object]:
        count = max(8, int(seconds / each / 4) * 4 * max(1, workers))
        loader, step = DataLoader(SlowSamples(count, each, work), batch_size=4, num_workers=workers), training_step()

        def loop() -> None:
            get_temp_dir()  # workers share this process's, which goes with it; of their own, a killed one would leave it behind
            with shield_children_from_sigint():  # an interrupt in the middle of a fork would be lost, and only end the workers
                batches = iter(loader)
            for batch in batches:
                step(batch)

        return loop

    return make


def from_generator(seconds: float) -> Callable[[], object]:
    step = training_step()

    def batches() -> Iterator[torch.Tensor]:
        for _ in range(int(seconds / 0.02)):
            time.sleep(0.02)  # a slow storage
            yield torch.ones(4, FEATURES)

    return lambda: [step(batch) for batch in batches()]


def thread_ahead(seconds: float) -> Callable[[], object]:
    step, total = training_step(), int(seconds / 0.02)

    def batches() -> Iterator[torch.Tensor]:
        waiting: queue.Queue = queue.Queue(2)
        gone = threading.Event()

        def load() -> None:
            for _ in range(total):
                if gone.is_set():
                    return
                time.sleep(0.02)  # a slow storage, read ahead
                waiting.put(torch.ones(4, FEATURES))

        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        try:
            for _ in range(total):
                yield waiting.get()
        finally:  # also where the loop was interrupted: a put that waits gets its room, and is the last one
            gone.set()
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
            thread.join()

    return lambda: [step(batch) for batch in batches()]


def in_threads(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hashing_threads(seconds: float) -> Callable[[], object]:
    return lambda: in_threads(*[lambda: hash_for(seconds)] * 3)


def thread_products(seconds: float) -> Callable[[], object]:
    a = torch.ones(256, 256)

    def work() -> None:
        torch.set_num_threads(1)  # holds for the calling thread: each multiplies alone
        repeat_for(seconds, lambda: a @ a)

    return lambda: in_threads(work, work, work)


def python_steps(seconds: float) -> Callable[[], object]:
    weights = [0.0] * FEATURES

    def update() -> None:
        for k in range(FEATURES):  # element by element
            weights[k] += 1e-3 * (k - weights[k])

    return lambda: repeat_for(seconds, update)


def torch_steps(seconds: float) -> Callable[[], object]:
    step, batch = training_step(), torch.ones(512, FEATURES)
    return lambda: repeat_for(seconds, lambda: step(batch))


def python_threads(seconds: float) -> Callable[[], object]:
    return lambda: in_threads(*[lambda: spin(seconds)] * 4)


def _under_a_lock(work: Callable[[float], object]) -> Callable[[float], Callable[[], object]]:
    def make(seconds: float) -> Callable[[], object]:
        lock, each = threading.Lock(), 0.02

        def use() -> None:
            for _ in range(max(1, round(seconds / each / 3))):
                with lock:
                    work(each)

        return lambda: in_threads(use, use, use)

    return make


def half_and_half(seconds: float) -> Callable[[], object]:
    step = training_step()

    def batches() -> Iterator[torch.Tensor]:
        for _ in range(round(seconds / 0.06)):
            time.sleep(0.03)
            yield torch.ones(4, FEATURES)

    def loop() -> None:
        for batch in batches():
            repeat_for(0.03, lambda batch=batch: step(batch))

    return loop


def sleeping_step(seconds: float) -> Callable[[], object]:
    step = training_step()

    def loop() -> None:
        for _ in range(round(seconds / 0.03)):
            step(torch.ones(4, FEATURES))
            time.sleep(0.03)  # nobody knows for what

    return loop


def too_short(seconds: float) -> Callable[[], object]:
    return lambda: training_step()(torch.ones(4, FEATURES))


ON_HOST = (
    KnownLoop("DataLoader, slow storage, no workers", "input", _loader(0, time.sleep, 0.005)),
    KnownLoop("DataLoader, slow storage, 2 workers", "input", _loader(2, time.sleep, 0.005)),
    KnownLoop("generator that reads a slow storage", "input", from_generator),
    KnownLoop("thread that reads ahead, slow storage", "input", thread_ahead),
    KnownLoop("DataLoader, heavy transforms, 3 workers", "CPU", _loader(3, hash_for, 0.005)),
    KnownLoop("3 threads that hash without the GIL", "CPU", hashing_threads),
    KnownLoop("3 threads that multiply matrices", "CPU", thread_products),
    KnownLoop("weights updated element by element", "single thread", python_steps),
    KnownLoop("training steps of torch on one thread", "single thread", torch_steps),
    KnownLoop("DataLoader, Python transforms, no workers", "single thread", _loader(0, spin, 0.005)),
    KnownLoop("4 threads of pure Python (the GIL)", "lock", python_threads),
    KnownLoop("3 threads, storage read under a lock", "lock", _under_a_lock(time.sleep)),
    KnownLoop("3 threads, hashing under a lock", "lock", _under_a_lock(hash_for)),
    KnownLoop("half waiting for input, half computing", CANNOT_TELL, half_and_half),
    KnownLoop("a step that sleeps for no known reason", CANNOT_TELL, sleeping_step),
    KnownLoop("one step only", CANNOT_TELL, too_short),
)
