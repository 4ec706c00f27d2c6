"""A small decoder trained for seconds on a text that ships with Python: the pages behind its own `help()`.

A token is a character of ASCII. The text and its length differ by Python's version, and so does what a net learns from it.
"""

import functools
from pydoc_data.topics import topics

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.errors import LabError
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize

VOCABULARY = 128  # characters of ASCII
BATCH_TOKENS = 1024  # of a training step


@functools.cache
def python_text() -> Tensor:
    """The whole text as int64 tokens (n,), some 400,000 of them: one space between words, and ? for what is not ASCII."""
    words = " ".join(topics[name] for name in sorted(topics)).split()
    return torch.frombuffer(bytearray(" ".join(words).encode("ascii", "replace")), dtype=torch.uint8).long()


def as_text(tokens: Tensor) -> str:
    """Tokens (n,) as the characters that they stand for."""
    return bytes(tokens.tolist()).decode("ascii")


@functools.cache
def trained_decoder(size: DecoderSize, steps: int, seed: int = 0) -> Decoder:
    """A decoder after `steps` steps of Adam on windows of the text, each as long as the longest sequence of `size`.

    In float32 on the CPU, without gradients. It is kept for this process and shared: copy.deepcopy(net).double() makes another
    precision of it. Raises LabError for a vocabulary that does not hold all characters.
    """
    if size.vocabulary < VOCABULARY:
        raise LabError(f"A vocabulary of {size.vocabulary} tokens is too small for ASCII.", f"Use {VOCABULARY}.")
    text, batch = python_text(), max(1, BATCH_TOKENS // size.length)
    with torch.random.fork_rng(devices=[]):  # what the caller draws next is the same, trained here or kept
        torch.manual_seed(seed)
        net = Decoder(size)
        optimizer = torch.optim.Adam(net.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        for _ in progress(range(steps), f"training a decoder of {size.layers} layers"):
            starts = torch.randint(len(text) - size.length, (batch, 1))
            window = text[starts + torch.arange(size.length + 1)]
            scores = net(window[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), window[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval().requires_grad_(False)
