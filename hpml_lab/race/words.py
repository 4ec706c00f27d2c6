"""Sparse data: bags of words whose frequencies follow Zipf's law, and a linear classifier for them.

Of V words the j-th most frequent has probability ∝ 1/j, as in a natural language: a few words are in every text, and most
words in hardly any. A text is `length` words drawn at random; each word has a hidden weight, and the text's label is the sign
of the sum of its words' weights. The classifier is logistic regression with one parameter a word. The gradient of a word
that is not in the batch is zero: a frequent word is corrected in every step, a rare one a few times in the whole training.

All settings and seeds train together. θ is (K settings, R seeds, V words); each seed has its own weights and texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpml_lab.core.progress import track
from hpml_lab.race.program import Setting


@dataclass(frozen=True)
class Texts:
    """Word numbers (R, N, length) and labels (R, N), 0 or 1; a word that comes twice in a text counts once."""

    words: torch.Tensor
    labels: torch.Tensor

    def bags(self, part: slice, vocabulary: int) -> torch.Tensor:
        """1 where a word is in the text, else 0: (R, texts in `part`, V)."""
        words = self.words[:, part]
        return torch.zeros(*words.shape[:2], vocabulary, device=words.device).scatter_(2, words, 1.0)


@dataclass(frozen=True)
class Corpus:
    """One corpus a seed: texts for training, and for validation and test both common texts and texts of rare words alone."""

    vocabulary: int
    weights: torch.Tensor  # (R, V), hidden from the classifier
    train: Texts
    parts: dict[str, Texts]

    def times_seen(self) -> torch.Tensor:
        """In how many training texts each word is, (R, V)."""
        total = torch.zeros_like(self.weights)
        for start in range(0, self.train.words.shape[1], 500):
            total += self.train.bags(slice(start, start + 500), self.vocabulary).sum(1)
        return total


def corpus(
    seeds: Sequence[int], vocabulary: int, texts: int, held_out: int, length: int = 20, rare_from: float = 0.1
) -> Corpus:
    """Draw a corpus for each seed, on the CPU, so that every device gets the same.

    texts      for training
    held_out   of each kind, for validation and for test
    rare_from  a rare word is one beyond this part of the list of words by frequency
    """
    frequency = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    rare = frequency.clone()
    rare[: int(rare_from * vocabulary)] = 0
    weights, drawn = [], []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        weights.append(torch.randn(vocabulary, generator=generator))
        counts = ((frequency, texts), (frequency, held_out), (rare, held_out), (frequency, held_out), (rare, held_out))
        drawn.append([torch.multinomial(p, n * length, True, generator=generator).view(n, length) for p, n in counts])
    hidden = torch.stack(weights)

    def labelled(words: torch.Tensor) -> Texts:
        made = Texts(words, torch.empty(0))
        score = torch.stack([made.bags(slice(i, i + 1), vocabulary)[:, 0].mul(hidden).sum(1) for i in range(words.shape[1])], 1)
        return Texts(words, (score > 0).float())

    made = [labelled(torch.stack(same)) for same in zip(*drawn, strict=True)]
    names = ("valid", "valid rare", "test", "test rare")
    return Corpus(vocabulary, hidden, made[0], dict(zip(names, made[1:], strict=True)))


@dataclass(frozen=True)
class Learned:
    """What the classifiers learned: θ (K, R, V), and their accuracy on each part of the corpus, (K, R)."""

    theta: torch.Tensor
    accuracy: dict[str, torch.Tensor]


@torch.no_grad()
def learn(
    settings: Sequence[Setting], made: Corpus, epochs: int, batch: int, device: torch.device | str = "cpu"
) -> Learned:
    """Train one classifier for each setting and seed from θ = 0, with the classes of hpml_lab.optim.

    z = Σⱼ xⱼ θⱼ, J = mean cross entropy of σ(z), ∂J/∂θⱼ = mean over the batch of (σ(z) − y) xⱼ
    """
    seeds, vocabulary = made.weights.shape
    theta = torch.zeros(len(settings), seeds, vocabulary, device=device)
    gradient = torch.zeros_like(theta)
    optimizers = []
    for k, setting in enumerate(settings):
        leaf = theta[k].requires_grad_()
        leaf.grad = gradient[k]
        optimizers.append(setting.build([leaf]))
    train = Texts(made.train.words.to(device), made.train.labels.to(device))
    for _ in track(range(epochs), "texts"):
        for start in range(0, train.words.shape[1] - batch + 1, batch):
            part = slice(start, start + batch)
            x, y = train.bags(part, vocabulary), train.labels[:, part]
            error = _scores(theta, x).sigmoid_() - y[:, :, None]  # (R, batch, K)
            gradient.copy_(torch.bmm(error.transpose(1, 2), x).transpose(0, 1)).div_(batch)
            for optimizer in optimizers:
                optimizer.step()
    accuracy = {}
    for name, texts in made.parts.items():
        there, right = Texts(texts.words.to(device), texts.labels.to(device)), 0
        for start in range(0, there.words.shape[1], 500):
            part = slice(start, start + 500)
            guess = _scores(theta, there.bags(part, vocabulary)) > 0
            right = right + (guess == there.labels[:, part, None].bool()).sum(1)
        accuracy[name] = (right.T / there.words.shape[1]).double().cpu()
    return Learned(theta.detach().cpu(), accuracy)


def _scores(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """z (R, N, K) of all classifiers for x (R, N, V)."""
    return torch.bmm(x, theta.permute(1, 2, 0))
