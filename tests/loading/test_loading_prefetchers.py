"""The two prefetchers: order, depth, errors and threads; and batches of any structure on their way to a GPU."""

import dataclasses
import threading
import time
from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import allow_oversubscription, child_pids
from hpml_lab.loading import DevicePrefetcher, FaceLandmarksDataset, KnownCost, ThreadPrefetcher, write_faces
from hpml_lab.loading.lessons.prefetchers import map_tensors


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("thread_")]


# --- the thread prefetcher ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (1, 3), (3, 3), (4, 9)])
def test_batches_come_in_order_whatever_the_threads(threads, depth):
    def fetch(number):
        time.sleep(0.004 if number % 3 == 0 else 0.0)
        return number * number

    prefetcher = ThreadPrefetcher(range(20), fetch, threads=threads, depth=depth)
    assert len(prefetcher) == 20
    assert list(prefetcher) == list(prefetcher) == [number**2 for number in range(20)]
    assert not loader_threads()


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (1, 3), (2, 4)])
def test_it_is_never_further_ahead_than_its_depth(threads, depth):
    begun = []
    most = 0
    for taken, _ in enumerate(
        ThreadPrefetcher(range(30), lambda number: begun.append(number), threads=threads, depth=depth), 1
    ):
        time.sleep(0.002)  # time enough to run ahead
        most = max(most, len(begun) - taken)
    assert most == depth and sorted(begun) == list(range(30))


def test_threads_fetch_at_once():
    meet = threading.Barrier(3)
    fetched = list(ThreadPrefetcher(range(6), lambda number: (meet.wait(10), number)[1], threads=3))
    assert fetched == list(range(6))  # each fetch waits for two others: one thread alone would break the barrier


def test_an_error_comes_at_its_batch_and_no_thread_is_left():
    def fetch(number):
        if number == 3:
            raise OSError("disk on fire")
        return number

    got = []
    with pytest.raises(OSError, match="disk on fire"):
        for number in ThreadPrefetcher(range(100), fetch, threads=2, depth=8):
            got.append(number)
    assert got == [0, 1, 2] and not loader_threads()


def test_leaving_early_stops_the_threads():
    begun = []
    for number in ThreadPrefetcher(range(1000), lambda number: (begun.append(number), number)[1], threads=2, depth=4):
        if number == 5:
            break
    assert not loader_threads() and len(begun) <= 6 + 4


def test_threads_without_a_batch_each_are_refused():
    for threads, depth in ((0, 1), (2, 1)):
        with pytest.raises(ValueError, match=f"threads={threads}, depth={depth}"):
            ThreadPrefetcher([1], abs, threads=threads, depth=depth)


# --- the device prefetcher ---------------------------------------------------------------------------------------------------


def batches(pin=False):
    made = [(torch.full((256, 1024), float(number)), torch.tensor([number])) for number in range(12)]
    return [tuple(tensor.pin_memory() for tensor in batch) for batch in made] if pin else made


def test_on_the_cpu_the_batches_pass_through():
    given = batches()
    got = list(DevicePrefetcher(given, torch.device("cpu")))
    assert len(got) == 12 and all(
        torch.equal(a, b) for batch, moved in zip(given, got, strict=True) for a, b in zip(batch, moved, strict=True)
    )
    assert list(DevicePrefetcher([], torch.device("cpu"))) == []
    assert isinstance(got[0], tuple)
    named = namedtuple("Batch", "image label")(*given[0])  # as default_collate makes of samples that are named tuples
    assert next(iter(DevicePrefetcher([named], torch.device("cpu")))).label.item() == 0


@pytest.mark.cuda
def test_on_a_gpu_no_batch_is_overwritten_before_it_is_read():
    device = torch.device("cuda:0")
    weight = torch.eye(1024, device=device)
    sums = []
    prefetcher = DevicePrefetcher(batches(pin=True), device)
    for images, label in prefetcher:
        work = images
        for _ in range(20):  # long work, queued while later copies want memory
            work = work @ weight
        sums.append((work.mean(), label))
        del images, work
    assert [(round(float(mean)), int(label)) for mean, label in sums] == [(number, number) for number in range(12)]


# --- any loader, any batch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_thread_runs_any_loader_ahead(workers):
    before = child_pids()
    with allow_oversubscription():
        loader = DataLoader(KnownCost(20), 4, num_workers=workers)
        prefetcher = ThreadPrefetcher(loader, depth=3)
        assert len(prefetcher) == 5
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in prefetcher] == [0, 4, 8, 12, 16]
    assert not loader_threads() and child_pids() <= before


def test_a_thread_runs_a_generator_ahead_and_its_error_comes_at_its_batch():
    begun = []

    def batches():
        for number in range(10):
            if number == 3:
                raise OSError("disk on fire")
            begun.append(number)
            yield number

    got = []
    with pytest.raises(OSError, match="disk on fire"):
        for number in ThreadPrefetcher(batches(), depth=2):
            got.append(number)
    assert got == begun == [0, 1, 2] and not loader_threads()


def test_one_iterable_is_run_by_one_thread():
    with pytest.raises(ValueError, match="one thread runs an iterable"):
        ThreadPrefetcher([1, 2], threads=2)


@pytest.mark.parametrize("grad", [False, True])
def test_batches_are_loaded_in_the_consumers_gradient_mode(grad):
    with torch.set_grad_enabled(grad):
        assert list(ThreadPrefetcher(range(2), lambda number: torch.is_grad_enabled(), threads=2)) == [grad, grad]


@dataclasses.dataclass
class Boxed:
    image: torch.Tensor
    name: str


def nested():
    pair = namedtuple("Pair", "image label")
    return {
        "image": torch.ones(2),
        "points": [torch.zeros(1), {"deep": (torch.ones(1), "text", 3, None)}],
        "pair": pair(torch.ones(3), torch.zeros(3)),
        "ordered": OrderedDict(a=torch.ones(1)),
        "default": defaultdict(list, a=torch.ones(1)),
        "boxed": Boxed(torch.ones(1), "face"),
        "packed": pack_sequence([torch.ones(3), torch.ones(2)]),
        "empty": [],
    }


def test_tensors_are_found_wherever_they_are_and_the_rest_stays_as_it_is():
    batch, seen = nested(), []
    moved = map_tensors(lambda tensor: (seen.append(tensor), tensor + 1)[1], batch)
    assert len(seen) == 9
    assert moved["points"][1]["deep"] == (torch.tensor([2.0]), "text", 3, None)
    assert type(moved["pair"]).__name__ == "Pair" and moved["pair"].label.tolist() == [1, 1, 1]
    assert type(moved["ordered"]) is OrderedDict and moved["default"]["missing"] == []
    assert moved["boxed"] == Boxed(torch.tensor([2.0]), "face") and moved["empty"] == []
    assert torch.equal(moved["packed"].batch_sizes, batch["packed"].batch_sizes), "these stay on the CPU"
    assert moved["packed"].data.tolist() == [2.0] * 5
    assert batch["image"].tolist() == [1, 1] and batch["default"]["a"].item() == 1, "the batch itself is unchanged"


def test_the_batches_of_face_landmarks_are_moved(tmp_path):
    from torchvision.transforms import v2

    table = write_faces(tmp_path / "faces", 6)
    loader = DataLoader(FaceLandmarksDataset(table, table.parent, v2.Resize((32, 32), antialias=True)), 4)
    prefetcher = DevicePrefetcher(loader, "cpu")
    assert len(prefetcher) == 2
    for batch, moved in zip(loader, prefetcher, strict=True):
        assert batch.keys() == moved.keys() and all(torch.equal(batch[name], moved[name]) for name in batch)


@dataclasses.dataclass
class Checked:
    """A batch that looks at its fields when it is made."""

    image: torch.Tensor
    name: str

    def __post_init__(self):
        assert self.image.ndim == 2 and self.name


def test_every_tensor_of_a_batch_is_kept_for_the_stream_that_reads_it(monkeypatch):
    """Streams that only take note: the current one waits for the copies, and no tensor's memory may be reused before it."""

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            noted.append((self.name, "waits for", other.name))

    noted, current = [], Stream("current")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    keep = lambda tensor, stream: noted.append((tensor.numel(), "kept for", stream.name))  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "record_stream", keep)
    prefetcher = DevicePrefetcher([], "cpu")
    prefetcher.stream = Stream("side")
    batch = {"boxed": Checked(torch.ones(1, 2), "face"), "list": [torch.ones(3), (torch.ones(4), None)]}
    batch["packed"] = pack_sequence([torch.ones(3), torch.ones(2)])
    arrived = prefetcher._arrived(batch)
    assert noted == [("current", "waits for", "side"), *((n, "kept for", "current") for n in (2, 3, 4, 5))]
    assert arrived["boxed"].image is batch["boxed"].image and arrived["list"][1][0] is batch["list"][1][0]


def test_a_batch_may_be_none():
    assert list(DevicePrefetcher([None, torch.ones(1), None], "cpu")) == [None, torch.ones(1), None]


@pytest.mark.cuda
def test_on_a_gpu_every_tensor_of_a_nested_batch_arrives():
    for moved in DevicePrefetcher([nested()] * 3, "cuda:0"):
        arrived = []
        map_tensors(lambda tensor, arrived=arrived: arrived.append(tensor.device.type) or tensor, moved)
        assert arrived and set(arrived) == {"cuda"}
        assert moved["packed"].batch_sizes.device.type == "cpu"


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_gpu_that_is_not_there_is_named(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LabError, match=r"device='cuda(:1)?', but torch sees no CUDA GPU here"):
        DevicePrefetcher([], device)


class BeginsAnew:
    """As DALI's iterators with auto_reset=True: behind its end the next epoch begins."""

    def __init__(self):
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number = (self.number + 1) % 5
        if self.number == 0:
            raise StopIteration
        return self.number


@pytest.mark.parametrize("depth", [1, 3])
def test_behind_the_end_nothing_is_asked_for(depth):
    batches = BeginsAnew()
    for _ in range(3):
        assert list(ThreadPrefetcher(batches, depth=depth)) == [1, 2, 3, 4]
