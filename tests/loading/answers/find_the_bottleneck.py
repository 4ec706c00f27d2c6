"""Answers to `find-the-bottleneck`: the table is parsed once, the pictures are read when they are asked for."""

import functools

import torch

from hpml_lab.loading.picture_store import augment, decode


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
