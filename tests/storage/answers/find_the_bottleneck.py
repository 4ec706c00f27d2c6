"""Answers to `find-the-bottleneck`: the table is parsed once, the pictures are read when they are asked for."""

import functools
import io

import numpy as np
import torch
from edited_source import wrong_answers
from PIL import Image
from torchvision.transforms import v2

from hpml_lab.storage.lessons.slow_pictures import augment, decode


def solution(store):
    class Pictures(torch.utils.data.Dataset):
        def __init__(self):
            self.labels = store.table()

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, index):
            return augment(decode(store.read(index))), self.labels[index]

    return Pictures()


class Given(torch.utils.data.Dataset):
    """A data set of a function that gives a sample."""

    def __init__(self, item, length):
        self.item, self.length = item, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.item(index)


def shared(store, labels=[]):  # noqa: B006
    if not labels:
        labels.extend(store.table())
    return Given(lambda i: (augment(decode(store.read(i))), labels[i]), store.count)


def parsed_each_epoch(store):
    asked, kept = [], {}

    def item(index):
        if len(asked) % store.count == 0:
            kept["labels"] = store.table()
        asked.append(index)
        return augment(decode(store.read(index))), kept["labels"][index]

    return Given(item, store.count)


def rarely(image):
    return image.flip(-1) if torch.rand(()) < 0.1 else image


CLASS, TABLE, LENGTH = "    class Pictures", "self.labels = store.table()", "len(self.labels)"
READ, PICTURE, LABEL = "store.read(index)", "augment(decode(store.read(index)))", "self.labels[index]"
ASKED_EACH_TIME = [(TABLE, "pass"), (LENGTH, "store.count"), (LABEL, "store.table()[index]")]
KEPT = [(PICTURE, "augment(picture(index))"), (CLASS, f"    picture = functools.cache(lambda index: decode({READ}))\n{CLASS}")]
WRONG = [
    *wrong_answers(
        solution,
        [
            ("still-parsed-for-each-sample", *ASKED_EACH_TIME),
            ("wrong-stage-fixed", *ASKED_EACH_TIME, *KEPT),
            ("keeps-every-picture", *KEPT),
            ("keeps-every-picture", ("decode", "once"), (CLASS, f"    once = functools.lru_cache(decode)\n{CLASS}")),
            (
                "reads-all-at-the-start",
                (PICTURE, "augment(pictures[index])"),
                (CLASS, f"    pictures = [decode(store.read(index)) for index in range(store.count)]\n{CLASS}"),
            ),
            ("parsed-more-than-once", (TABLE, f"{TABLE}\n            self.count = len(store.table())")),
            ("shared-between-datasets", (TABLE, 'self.labels = MEMORY.setdefault("labels", store.table())')),
            ("augmentation-frozen", (PICTURE, f"decode({READ})")),
            ("augmentation-frozen", (PICTURE, f"decode({READ}).flip(-1)")),
            ("mirrored-up-down", (PICTURE, f"{PICTURE}.flip(-2)")),
            ("mirrored-at-another-rate", ("augment", "rarely")),
            ("not-decoded", (PICTURE, READ)),
            ("raises", (PICTURE, f"augment({READ})")),
            ("wrong-picture", (PICTURE, f"{PICTURE} / 255")),
            ("wrong-picture", (READ, "store.read((index + 1) % store.count)")),
            ("wrong-shape", (PICTURE, f"{PICTURE}[0]")),
            ("reads-another", (READ, "store.read(index % 64)")),
            ("reads-twice", (READ, f"{READ} and {READ}")),
            ("reads-twice", (READ, f"store.read({READ} and index)")),
            ("wrong-label", (LABEL, "self.labels[index - 1]")),
            ("wrong-label", (LABEL, "0")),
            ("swapped", (f"{PICTURE}, {LABEL}", f"{LABEL}, {PICTURE}")),
            ("not-a-pair", (f", {LABEL}", "")),
            ("wrong-type", (LABEL, f"torch.tensor({LABEL})")),
            ("wrong-length", (LENGTH, "10")),
        ],
    ),
    ("shared-between-datasets", shared),
    ("parsed-more-than-once", parsed_each_epoch),
]


def with_labels(sample):
    """A data set whose table is parsed once, with sample(store, labels, index)."""

    def make(store):
        labels = store.table()
        return Given(lambda i: sample(store, labels, i), store.count)

    return make


def cached(store):
    table = functools.lru_cache(maxsize=None)(store.table)
    return Given(lambda i: (augment(decode(store.read(i))), table()[i]), store.count)


def by_dictionary(store):
    labels = dict(enumerate(store.table()))
    return Given(lambda i: [augment(decode(store.read(int(i)))), np.int64(labels[i])], store.count)


def keeps_the_last(store):
    labels, kept = store.table(), {}

    def item(index):
        if index not in kept:
            kept.clear()
            kept[index] = decode(store.read(index))
        return augment(kept[index]), labels[index]

    return Given(item, store.count)


def lazy(store):
    """Each worker parses its own table at its first sample."""
    kept = []

    def item(index):
        if not kept:
            kept.extend(store.table())
        return augment(decode(store.read(index))), kept[index]

    return Given(item, store.count)


def by_pil(data):
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("L"), dtype=np.float32) / 255)[None]


ALSO_RIGHT = [
    lazy,
    with_labels(lambda store, labels, i: (augment(by_pil(store.read(i))), labels[i])),
    with_labels(lambda store, labels, i: (v2.RandomHorizontalFlip()(decode(store.read(i))), labels[i])),
    cached,
    by_dictionary,
    keeps_the_last,
    with_labels(lambda store, labels, i: (augment(decode(store.read(i))).clone(), int(labels[i]))),
]
