"""The lab's script for text: a small transformer that predicts the next character of Python's own documentation.

    python text_training.py --quick

It stands next to `lab_training.py`, takes its options and replaces its net and its data. --data names a text file.
"""

import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hpml_lab.your_script.lessons import lab_training

LENGTH = 64  # characters of a sample
HEADS = 4
TEXT = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
CHARACTERS = sorted(set(TEXT))


class NextCharacter(nn.Module):
    """A causal transformer of two layers: for each position the scores of the next character."""

    def __init__(self, width: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(len(CHARACTERS), width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, HEADS, 4 * width, dropout, batch_first=True, norm_first=True)
        if norm == "none":
            layer.norm1 = layer.norm2 = nn.Identity()
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(width, len(CHARACTERS))

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        positions = self.positions(torch.arange(x.shape[1], device=x.device))
        return self.scores(self.layers(self.tokens(x) + positions, mask=mask, is_causal=True))


class Windows(Dataset):
    """Pieces of a text: characters, and those that follow them."""

    def __init__(self, characters: Tensor) -> None:
        self.characters = characters

    def __len__(self) -> int:
        return (len(self.characters) - 1) // LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * LENGTH
        return self.characters[start : start + LENGTH], self.characters[start + 1 : start + LENGTH + 1]


def make_net(width: int = 64, norm: str = "batch", dropout: float = 0.0) -> nn.Module:
    if width % HEADS:
        sys.exit(f"--width {width} is no multiple of the {HEADS} heads of attention.")
    return NextCharacter(width, norm, dropout)


def make_batch(size: int) -> tuple[Tensor, Tensor]:
    x = torch.randint(len(CHARACTERS), (size, LENGTH + 1))
    return x[:, :-1], x[:, 1:]


def make_data(folder: Path | None = None) -> tuple[Dataset, Dataset]:
    """The first nine tenths of the text to train, the rest to test; or of a text file, whose other characters are left out."""
    try:
        text = TEXT if folder is None else folder.read_bytes()
    except OSError as error:
        sys.exit(f"{folder} cannot be read ({error.strerror}). --data names a text file.")
    numbers = torch.full((256,), -1)
    numbers[CHARACTERS] = torch.arange(len(CHARACTERS))
    characters = numbers[torch.frombuffer(bytearray(text), dtype=torch.uint8).long()]
    characters = characters[characters >= 0]
    if len(characters) < 100 * LENGTH:
        sys.exit(f"{folder} has {len(characters)} characters that are known, too few to train and to test.")
    cut = 9 * len(characters) // 10
    return Windows(characters[:cut]), Windows(characters[cut:])


if __name__ == "__main__":
    lab_training.main(make_net=make_net, make_data=make_data)
