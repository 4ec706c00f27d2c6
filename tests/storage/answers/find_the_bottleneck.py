"""Answers to `find-the-bottleneck`: the table is parsed once, the pictures are read when they are asked for."""

import functools

import numpy as np
import torch
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


def as_given(store):
    return Given(lambda i: (augment(decode(store.read(i))), store.table()[i]), store.count)


def pictures_kept(store):
    picture = functools.cache(lambda i: decode(store.read(i)))
    return Given(lambda i: (augment(picture(i)), store.table()[i]), store.count)


def everything_kept(store):
    labels, picture = store.table(), functools.cache(lambda i: decode(store.read(i)))
    return Given(lambda i: (augment(picture(i)), labels[i]), store.count)


def all_read_first(store):
    labels, pictures = store.table(), [decode(store.read(i)) for i in range(store.count)]
    return Given(lambda i: (augment(pictures[i]), labels[i]), store.count)


def no_augmentation(store):
    labels = store.table()
    return Given(lambda i: (decode(store.read(i)), labels[i]), store.count)


def always_mirrored(store):
    labels = store.table()
    return Given(lambda i: (decode(store.read(i)).flip(-1), labels[i]), store.count)


def drawn_once(store):
    labels, flips = store.table(), {}

    def item(index):
        picture = decode(store.read(index))
        return (picture.flip(-1) if flips.setdefault(index, bool(torch.rand(()) < 0.5)) else picture), labels[index]

    return Given(item, store.count)


def shared(store, labels=[]):  # noqa: B006
    if not labels:
        labels.extend(store.table())
    return Given(lambda i: (augment(decode(store.read(i))), labels[i]), store.count)


def shifted(store):
    labels = store.table()
    return Given(lambda i: (augment(decode(store.read(i))), labels[i - 1]), store.count)


def first_picture(store):
    labels, kept = store.table(), {}

    def item(index):
        if "picture" not in kept:
            kept["picture"] = decode(store.read(index))
        return augment(kept["picture"]), labels[index]

    return Given(item, store.count)


def parsed_each_epoch(store):
    asked, kept = [], {}

    def item(index):
        if len(asked) % store.count == 0:
            kept["labels"] = store.table()
        asked.append(index)
        return augment(decode(store.read(index))), kept["labels"][index]

    return Given(item, store.count)


def read_twice(store):
    labels = store.table()
    return Given(lambda i: (augment(decode(store.read(i) and store.read(i))), labels[i]), store.count)


WRONG = [
    ("still-parsed-for-each-sample", as_given),
    ("wrong-stage-fixed", pictures_kept),
    ("keeps-every-picture", everything_kept),
    ("reads-all-at-the-start", all_read_first),
    ("augmentation-frozen", no_augmentation),
    ("augmentation-frozen", always_mirrored),
    ("augmentation-frozen", drawn_once),
    ("shared-between-datasets", shared),
    ("wrong-label", shifted),
    ("wrong-picture", first_picture),
    ("parsed-more-than-once", parsed_each_epoch),
    ("reads-twice", read_twice),
    ("wrong-length", lambda store: Given(lambda i: None, store.count - 1)),
    ("not-a-dataset", lambda store: store.table()[0]),
    ("returns-nothing", lambda store: None),
]


def with_labels(sample, length=None):
    """A data set whose table is parsed once, with sample(store, labels, index)."""

    def make(store):
        labels = store.table()
        return Given(lambda i: sample(store, labels, i), store.count if length is None else length)

    return make


def cached(store):
    table = functools.lru_cache(maxsize=None)(store.table)
    return Given(lambda i: (augment(decode(store.read(i))), table()[i]), store.count)


def by_dictionary(store):
    labels = dict(enumerate(store.table()))
    return Given(lambda i: [augment(decode(store.read(int(i)))), np.int64(labels[i])], store.count)


def parsed_twice(store):
    return Given(lambda i, labels=store.table(): (augment(decode(store.read(i))), labels[i]), len(store.table()))


def keeps_the_last(store):
    labels, kept = store.table(), {}

    def item(index):
        if index not in kept:
            kept.clear()
            kept[index] = decode(store.read(index))
        return augment(kept[index]), labels[index]

    return Given(item, store.count)


FIRST_STORE = {}


def first_labels(store):
    labels = FIRST_STORE.setdefault("labels", store.table())
    return Given(lambda i: (augment(decode(store.read(i))), labels[i]), store.count)


WRONG += [
    ("swapped", with_labels(lambda store, labels, i: (labels[i], augment(decode(store.read(i)))))),
    ("not-a-pair", with_labels(lambda store, labels, i: augment(decode(store.read(i))))),
    ("not-decoded", with_labels(lambda store, labels, i: (store.read(i), labels[i]))),
    ("reads-twice", with_labels(lambda store, labels, i: (augment(decode(store.read(store.read(i) and i))), labels[i]))),
    ("wrong-picture", with_labels(lambda store, labels, i: (augment(decode(store.read((i + 1) % store.count))), labels[i]))),
    ("mirrored-up-down", with_labels(lambda store, labels, i: (augment(decode(store.read(i))).flip(-2), labels[i]))),
    ("wrong-picture", with_labels(lambda store, labels, i: (augment(decode(store.read(i))) / 255, labels[i]))),
    ("wrong-label", with_labels(lambda store, labels, i: (augment(decode(store.read(i))), 0))),
    ("wrong-label", with_labels(lambda store, labels, i: (augment(decode(store.read(i))), sorted(labels)[i]))),
    ("parsed-more-than-once", parsed_twice),
    ("shared-between-datasets", first_labels),
    ("wrong-length", with_labels(lambda store, labels, i: None, length=10)),
    ("returns-nothing", lambda store: store.table() and None),
    ("raises", with_labels(lambda store, labels, i: (augment(store.read(i)), labels[i]))),
]


def decoded_kept(store):
    labels, kept = store.table(), {}

    def item(index):
        data = store.read(index)
        if index not in kept:
            kept[index] = decode(data)
        return augment(kept[index]), labels[index]

    return Given(item, store.count)


def cached_decode(store):
    labels, once = store.table(), functools.lru_cache(decode)
    return Given(lambda i: (augment(once(store.read(i))), labels[i]), store.count)


def rarely(image):
    return image.flip(-1) if torch.rand(()) < 0.1 else image


WRONG += [
    ("keeps-every-picture", decoded_kept),
    ("keeps-every-picture", cached_decode),
    ("mirrored-at-another-rate", with_labels(lambda store, labels, i: (rarely(decode(store.read(i))), labels[i]))),
    ("reads-another", with_labels(lambda store, labels, i: (augment(decode(store.read(i % 64))), labels[i]))),
    ("wrong-shape", with_labels(lambda store, labels, i: (augment(decode(store.read(i)))[0], labels[i]))),
    ("wrong-label", with_labels(lambda store, labels, i: (augment(decode(store.read(i))), str(labels[i])))),
    ("returns-the-class", lambda store: Given),
]


def lazy(store):
    """Each worker parses its own table at its first sample."""
    kept = []

    def item(index):
        if not kept:
            kept.extend(store.table())
        return augment(decode(store.read(index))), kept[index]

    return Given(item, store.count)


ALSO_RIGHT = [
    lazy,
    with_labels(lambda store, labels, i: (v2.RandomHorizontalFlip()(decode(store.read(i))), labels[i])),
    cached,
    by_dictionary,
    keeps_the_last,
    with_labels(lambda store, labels, i: (augment(decode(store.read(i))).numpy(), torch.tensor(labels[i]))),
    with_labels(lambda store, labels, i: (augment(decode(store.read(i))).clone(), int(labels[i]))),
]
