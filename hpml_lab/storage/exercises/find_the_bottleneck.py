"""find-the-bottleneck: the samples of a slow Dataset, without its slow stage. What is asked of the store is counted."""

from collections.abc import Callable, Sized
from typing import Any
from unittest import mock

import numpy as np
import torch

from hpml_lab.core.judge.asked import given_last
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import plain, same
from hpml_lab.core.system.random_states import seed_everything
from hpml_lab.storage.lessons import slow_pictures
from hpml_lab.storage.lessons.slow_pictures import PictureStore, decode

COUNT, EPOCHS = 70, 5  # more samples than the store has different pictures


@exercise("find-the-bottleneck", notebook="09_storage", takes="store", returns=Sized)
def judge_find_the_bottleneck(answer: Callable) -> None:
    """The table is parsed once per data set; each picture is read when its sample is asked for, and augmented anew."""
    stores = [PictureStore(COUNT, side=6, seed=seed) for seed in (0, 1)]
    with mock.patch.object(slow_pictures, "decode_png", wraps=slow_pictures.decode_png) as decoder:
        _judge_datasets(answer, stores, decoder)


def _judge_datasets(answer: Callable, stores: list[PictureStore], decoder: mock.Mock) -> None:
    """Two data sets side by side; `decoder` counts how often `decode` is called."""
    datasets = [_made(answer, store) for store in stores]
    seed_everything(0)
    other_labels: list[int] = []
    share = []
    for seed, (dataset, store) in enumerate(zip(datasets, stores, strict=True)):
        twin = PictureStore(COUNT, side=6, seed=seed)  # what it counts does not matter
        labels, pictures = twin.table(), [decode(twin.read(index)) for index in range(COUNT)]
        decoder.reset_mock()  # what the check decoded says nothing of the answer, which may have a decoder of its own
        if len(dataset) != COUNT:
            raise Mistake("wrong-length", f"len(dataset) should be {COUNT}; yours is {len(dataset)}.")
        mirrored: list[list[bool]] = [[] for _ in range(COUNT)]
        for epoch in range(EPOCHS):
            before, decoded = len(store.reads), decoder.call_count
            for index in np.random.permutation(COUNT).tolist():
                at = len(store.reads)
                image, label = _sample(dataset, index)
                mirrored[index].append(_is_mirrored(image, pictures, index))
                if isinstance(label, str) or label != labels[index]:
                    raise _wrong_label(index, label, labels, other_labels)
                if other := set(store.reads[at:]) - {index}:
                    raise Mistake("reads-another", f"For sample {index} you read picture {other.pop()} of the store.")
            reads = len(store.reads) - before
            _judge_reads(store, reads, epoch)
            if decoder.called and decoder.call_count - decoded < reads:
                raise Mistake(
                    "keeps-every-picture",
                    "The bytes are read for each sample, but they are not decoded: decoded pictures stay in memory, in each "
                    "worker. || Decoding stays as it is, for each sample: was it the slow stage?",
                )
        _judge_tables(store)
        if all(len(set(seen)) == 1 for seen in mirrored):
            raise Mistake(
                "augmentation-frozen",
                "Over many epochs each picture looks the same: the random mirroring is gone, or was drawn once and kept. || "
                "Mirror as before, anew for each sample.",
            )
        share.append(np.mean(mirrored))
        other_labels = labels
    if abs(np.mean(share) - 0.5) > 0.1:  # of 700 samples: five standard deviations
        raise Mistake(
            "mirrored-at-another-rate",
            f"{100 * np.mean(share):.0f} % of your samples are mirrored; `augment` mirrors every second one on average.",
        )


def _made(answer: Callable, store: PictureStore) -> Any:
    dataset = answer(store)
    if store.reads:
        raise Mistake(
            "reads-all-at-the-start",
            f"{len(store.reads)} pictures are read before the first sample is asked for. A data set that does not fit into "
            "memory fails here. Was reading the slow stage?",
        )
    return dataset


def _sample(dataset: Any, index: int) -> tuple[Any, Any]:
    sample = dataset[index]
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise Mistake("not-a-pair", f"dataset[{index}] is the pair (image, label); yours is a {type(sample).__name__}.")
    image, label = sample
    if isinstance(image, int | np.integer) or getattr(image, "ndim", 3) == 0:
        raise Mistake("swapped", f"dataset[{index}] is (image, label), in this order.")
    if isinstance(image, bytes):
        raise Mistake("not-decoded", f"The image of dataset[{index}] is still bytes: decode and augment it.")
    if isinstance(label, torch.Tensor):
        raise Mistake("wrong-type", f"The label of dataset[{index}] is a plain number; yours is a tensor.")
    return image, label


def _is_mirrored(image: Any, pictures: list[torch.Tensor], index: int) -> bool:
    """Whether the sample's picture is mirrored; random pixels are never symmetric."""
    picture = pictures[index]
    if same(image, picture):
        return False
    if same(image, picture.flip(-1)):
        return True
    if same(image, picture.flip(-2)) or same(image, picture.flip(-1, -2)):
        raise Mistake("mirrored-up-down", "`augment` mirrors a picture from left to right, not upside down.")
    shape = tuple(getattr(image, "shape", picture.shape))
    if shape != tuple(picture.shape):
        hint = f"The image of dataset[{index}] should have the shape {tuple(picture.shape)}; yours is {shape}."
        raise Mistake("wrong-shape", hint, given_last(()))
    other = any(same(image, p) or same(image, p.flip(-1)) for p in pictures)
    raise Mistake(
        "wrong-picture",
        f"Sample {index} has {'the picture of another sample' if other else 'a picture that is not in the store'}: "
        "it should be decode(store.read(index)), augmented.",
    )


def _wrong_label(index: int, label: Any, labels: list[int], other_labels: list[int]) -> Mistake:
    shared = bool(other_labels) and label == other_labels[index]
    hint = f"Sample {index} should have the label {labels[index]}; yours is {plain(label)!r}."
    if shared:
        hint += " It is the label of the data set made before: what is kept must belong to one data set."
    return Mistake("shared-between-datasets" if shared else "wrong-label", hint)


def _judge_reads(store: PictureStore, reads: int, epoch: int) -> None:
    """How many pictures one epoch read."""
    if epoch and reads < COUNT and store.tables > COUNT:
        raise Mistake(
            "wrong-stage-fixed",
            "You keep pictures in memory, and the table is still parsed for each sample. || The stage to save is the one"
            " with the longest bar.",
        )
    if epoch and reads < COUNT:
        raise Mistake(
            "keeps-every-picture",
            f"In the second epoch {reads} of {COUNT} pictures are read: the others stay in memory, in each worker. || Reading"
            " stays as it is, for each sample: was it the slow stage?",
        )
    if reads > COUNT:
        raise Mistake("reads-twice", f"{reads} pictures are read for {COUNT} samples.")


def _judge_tables(store: PictureStore) -> None:
    """How often the table was parsed."""
    samples = EPOCHS * COUNT
    if store.tables >= samples:
        raise Mistake("still-parsed-for-each-sample", f"For {samples} samples the table is parsed {store.tables} times.")
    if store.tables > 1:
        raise Mistake(
            "parsed-more-than-once", f"The table is parsed {store.tables} times. Once is enough: where do you keep it?"
        )
