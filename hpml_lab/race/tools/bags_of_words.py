"""Sparse data: bags of words whose frequencies follow Zipf's law, and a linear classifier for them.

Of V words the j-th most frequent has probability ∝ 1/j, as in a natural language: a few words are in every text, and most
words in hardly any. A text is `length` words drawn at random; each word has a hidden weight, and the text's label is the sign
of the sum of its words' weights. The classifier is logistic regression with one parameter per word. The gradient of a word
that is not in the batch is zero: a frequent word is updated in every step, a rare one a few times in the whole training.

All settings and seeds train together. θ is (K settings, R seeds, V words); each seed has its own weights and texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpml_lab.race.tools.program import Setting

FREQUENT = 0.1  # the fraction of the words that are called frequent; all others are rare
ROWS = 500  # texts that are evaluated together


@dataclass(frozen=True)
class Texts:
    """Word numbers (R, N, length) and labels (R, N), 0 or 1; a word that comes twice in a text counts once.

    by_rare (R, N) is True for texts that the rare words decide: the frequent words alone would give the other label.
    """

    words: torch.Tensor
    labels: torch.Tensor
    by_rare: torch.Tensor

    def bags(self, texts: slice, vocabulary: int) -> torch.Tensor:
        """1 where a word is in the text, else 0: (R, texts, V)."""
        return _bags(self.words[:, texts], vocabulary)

    def to(self, device: torch.device | str) -> "Texts":
        return Texts(self.words.to(device), self.labels.to(device), self.by_rare.to(device))


def _bags(words: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return torch.zeros(*words.shape[:2], vocabulary, device=words.device).scatter_(2, words, 1.0)


@dataclass(frozen=True)
class Corpus:
    """One corpus per seed: hidden weights (R, V), and texts for training, for choosing the rate, and for the test."""

    weights: torch.Tensor
    train: Texts
    valid: Texts
    test: Texts

    def times_seen(self) -> torch.Tensor:
        """The number of training texts that contain each word, (R, V)."""
        total = torch.zeros_like(self.weights)
        for start in range(0, self.train.words.shape[1], ROWS):
            total += self.train.bags(slice(start, start + ROWS), self.weights.shape[1]).sum(1)
        return total


def corpus(seeds: Sequence[int], vocabulary: int, texts: int, held_out: int, power: float, length: int = 20) -> Corpus:
    """Draw a corpus for each seed, on the CPU, so that every device gets the same.

    The weight of the j-th word is a normal random number times (j/V)^power: with power 0 all words weigh alike, with ½ rarer
    words weigh more, as in search engines. `texts` are for training, `held_out` each for validation and test.
    """
    rank = torch.arange(1, vocabulary + 1, dtype=torch.float64)
    weights, drawn = [], []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        weights.append(torch.randn(vocabulary, generator=generator) * ((rank / vocabulary) ** power).float())
        drawn.append(
            [
                torch.multinomial(1 / rank, n * length, True, generator=generator).view(n, length)
                for n in (texts, held_out, held_out)
            ]
        )
    hidden = torch.stack(weights)
    return Corpus(hidden, *(_labeled(torch.stack(words), hidden) for words in zip(*drawn, strict=True)))


def _labeled(words: torch.Tensor, hidden: torch.Tensor) -> Texts:
    frequent = int(FREQUENT * hidden.shape[1])
    labels, by_rare = [], []
    for chunk in words.split(ROWS, dim=1):
        votes = _bags(chunk, hidden.shape[1]) * hidden[:, None]
        label = votes.sum(2) > 0
        labels.append(label)
        by_rare.append(label != (votes[:, :, :frequent].sum(2) > 0))
    return Texts(words, torch.cat(labels, 1).float(), torch.cat(by_rare, 1))


@dataclass(frozen=True)
class Learned:
    """What the classifiers learned: θ (K, R, V), and accuracies (K, R).

    `valid` and `test` are over all texts of these sets, `test_rare` over the test texts that the rare words decide.
    """

    theta: torch.Tensor
    valid: torch.Tensor
    test: torch.Tensor
    test_rare: torch.Tensor


@torch.no_grad()
def learn(settings: Sequence[Setting], made: Corpus, epochs: int, batch: int, device: torch.device | str = "cpu") -> Learned:
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
    train = made.train.to(device)
    for _ in range(epochs):
        for start in range(0, train.words.shape[1] - batch + 1, batch):
            rows = slice(start, start + batch)
            x, y = train.bags(rows, vocabulary), train.labels[:, rows]
            error = _scores(theta, x).sigmoid_() - y[:, :, None]  # (R, batch, K)
            gradient.copy_(torch.bmm(error.transpose(1, 2), x).transpose(0, 1)).div_(batch)
            for optimizer in optimizers:
                optimizer.step()
    valid, _ = _accuracies(theta, made.valid.to(device))
    test, test_rare = _accuracies(theta, made.test.to(device))
    return Learned(theta.detach().cpu(), valid, test, test_rare)


def _accuracies(theta: torch.Tensor, texts: Texts) -> tuple[torch.Tensor, torch.Tensor]:
    """Accuracies (K, R) on all texts, and on those that the rare words decide."""
    chunks = []
    for start in range(0, texts.words.shape[1], ROWS):
        rows = slice(start, start + ROWS)
        guess = _scores(theta, texts.bags(rows, theta.shape[2])) > 0
        chunks.append(guess == texts.labels[:, rows, None].bool())
    right = torch.cat(chunks, 1)  # (R, N, K)
    rare = texts.by_rare[:, :, None]
    return right.double().mean(1).T.cpu(), ((right & rare).sum(1) / rare.sum(1)).double().T.cpu()


def _scores(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """z (R, N, K) of all classifiers for x (R, N, V)."""
    return torch.bmm(x, theta.permute(1, 2, 0))
