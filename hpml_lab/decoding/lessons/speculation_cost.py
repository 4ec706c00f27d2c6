"""When speculation pays: tokens that a pass of the large net gives, over what the pass and its proposals cost.

If each proposal is accepted with probability a, the i-th counts only if all up to it were accepted: with probability aⁱ. And
the large net adds one token itself:

    tokens a pass   1 + a + a² + … + aᵏ = (1 − aᵏ⁺¹) / (1 − a)
    its cost        1 + k·c                  c: a pass of the draft, in passes of the target

The cost takes for granted that a pass over k + 1 tokens lasts as long as one over a single token: so it is while reading the
weights limits it, which is decoding of few sequences. Source: Leviathan, Kalman and Matias 2023, theorem 3.8.
"""


def tokens_a_pass(a: float, k: int) -> float:
    """The mean number of tokens that a pass of the target gives: k are proposed, each accepted with probability a."""
    return k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a)


def speculation_gain(a: float, k: int, c: float) -> float:
    """How many times as fast as the target alone: tokens a pass / (1 + k·c)."""
    return tokens_a_pass(a, k) / (1 + k * c)
