"""Word vectors with a dense or a sparse gradient, and the memory of both.

words = zipf_words(100_000, texts=64, length=20, seed=0)
vectors = WordVectors(vocabulary=100_000, dim=16, sparse=True)
vectors.backward(words, labels)
gradient_bytes(vectors.weight.grad)
"""

import torch


class WordVectors:
    """A bag of word vectors (V, dim), summed and read out by a fixed vector, as at the input of a text classifier.

    With sparse=True the gradient holds only the rows of the words in the batch.
    """

    def __init__(
        self, vocabulary: int, dim: int, sparse: bool, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        generator = torch.Generator().manual_seed(vocabulary)
        start = torch.randn(vocabulary, dim, generator=generator, dtype=dtype) / dim
        self.bag = torch.nn.EmbeddingBag(vocabulary, dim, mode="sum", sparse=sparse, _weight=start.to(device))
        self.readout = torch.randn(dim, generator=generator, dtype=dtype).to(device)

    @property
    def weight(self) -> torch.nn.Parameter:
        return self.bag.weight

    def backward(self, words: torch.Tensor, labels: torch.Tensor) -> None:
        """Put the gradient of the mean cross entropy for `words` (N, length) and `labels` (N,) into weight.grad."""
        self.weight.grad = None
        z = self.bag(words) @ self.readout
        torch.nn.functional.binary_cross_entropy_with_logits(z, labels.to(z.dtype)).backward()


def gradient_bytes(gradient: torch.Tensor) -> int:
    """The memory of a gradient: its values, and for a sparse one also their indices."""
    if not gradient.is_sparse:
        return gradient.nbytes
    gradient = gradient.coalesce()
    return gradient.indices().nbytes + gradient.values().nbytes


def zipf_words(vocabulary: int, texts: int, length: int, seed: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Word numbers (texts, length) with probability ∝ 1/j, for any size of vocabulary."""
    # torch.multinomial takes at most 2²⁴ categories; inverting the distribution function has no such limit.
    generator = torch.Generator().manual_seed(seed)
    total = (1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)).cumsum(0)
    drawn = torch.rand(texts, length, generator=generator, dtype=torch.float64) * total[-1]
    return torch.searchsorted(total, drawn).clamp_(max=vocabulary - 1).to(device)
