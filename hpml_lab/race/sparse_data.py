"""What the experiment `sparse-data` measures and claims."""

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import Any

import torch

from hpml_lab.core.result import Claim
from hpml_lab.core.timing import compare
from hpml_lab.optim import Adam, SparseAdam
from hpml_lab.race.program import Setting
from hpml_lab.race.words import Learned, WordVectors, gradient_bytes, zipf_words

ADAPTIVE = ("Adagrad", "Adadelta", "Adam", "RMSprop")
OTHERS = ("SGD", "Momentum", "Nesterov")
# Where each optimizer's best rate was looked for; the adaptive ones' lists begin with the rate on the lecture's PyTorch slide,
# RMSprop's, which has none there, with torch's default.
RATES: dict[str, tuple[float, ...]] = {
    "SGD": (0.1, 0.3, 1, 3, 10, 30),
    "Momentum": (0.01, 0.03, 0.1, 0.3, 1, 3),
    "Nesterov": (0.01, 0.03, 0.1, 0.3, 1, 3),
    "Adagrad": (0.01, 0.1, 0.3, 1, 3, 10),
    "Adadelta": (1, 3, 10, 30, 100, 300),
    "Adam": (0.001, 0.01, 0.03, 0.1, 0.3, 1),
    "RMSprop": (0.01, 0.03, 0.1, 0.3, 1, 3),
}
SETTINGS = [Setting(name, lr=float(rate)) for name, rates in RATES.items() for rate in rates]


def needed(seeds: int) -> int:
    """In how many of `seeds` seeds one of two must be ahead, so that chance alone does that in at most 5 % of such races."""
    return next(k for k in range(seeds + 2) if sum(comb(seeds, i) for i in range(k, seeds + 1)) <= 0.05 * 2**seeds)


def ahead(a: Sequence[float], b: Sequence[float]) -> tuple[bool, str]:
    """Is `a` above `b` in so many of the seeds that it is no chance? And the count in words. Seeds are compared in pairs."""
    wins, enough = sum(x > y for x, y in zip(a, b, strict=True)), needed(len(a))
    return (
        wins >= enough,
        f"{wins} of {len(a)} seeds ({enough} needed), medians {100 * median(a):.1f} and {100 * median(b):.1f} %",
    )


def summarise(learned: Learned) -> dict[str, dict[str, Any]]:
    """Each optimizer at the rate of its best median accuracy on the validation texts, and the whole sweep."""
    found: dict[str, dict[str, Any]] = {}
    for name, rates in RATES.items():
        places = [k for k, setting in enumerate(SETTINGS) if setting.optimizer == name]
        valid = [learned.accuracy["valid"][k].tolist() for k in places]
        best = max(range(len(places)), key=lambda i: median(valid[i]))
        k = places[best]
        found[name] = {
            "rates": list(map(float, rates)),
            "valid": valid,
            "lr": float(rates[best]),
            "edge": best in (0, len(places) - 1),
            "test": learned.accuracy["test"][k].tolist(),
            "rare": learned.accuracy["test rare"][k].tolist(),
            "first rate": learned.accuracy["test"][places[0]].tolist(),
        }
    return found


def winners(found: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """The best adaptive optimizer and the best of the others, by the validation texts."""

    def score(name: str) -> float:
        return max(median(values) for values in found[name]["valid"])

    return max(ADAPTIVE, key=score), max(OTHERS, key=score)


def lead(found: dict[str, dict[str, Any]]) -> float:
    """Points of accuracy by which the best adaptive optimizer leads the best other one on texts that rare words decide."""
    adaptive, other = winners(found)
    return 100 * (median(found[adaptive]["rare"]) - median(found[other]["rare"]))


def corpus_claims(found: dict[str, dict[str, Any]], where: str) -> list[Claim]:
    """Do adaptive methods win on sparse features? Judged in pairs of seeds, each optimizer at its best rate."""
    adaptive, other = winners(found)
    claims = []
    for part, words in (("test", "all test texts"), ("rare", "the texts that rare words decide")):
        holds, told = ahead(found[adaptive][part], found[other][part])
        claims.append(
            Claim(
                f"{where}: the best adaptive method beats the best other one on {words}",
                holds,
                f"{adaptive} against {other}: {told}",
                exact=False,
            )  # fmt: skip
        )
    lost = [name for name in ADAPTIVE if not ahead(found[name]["rare"], found[other]["rare"])[0]]
    claims.append(
        Claim(
            f"{where}: each of the four adaptive methods does so on the texts that rare words decide",
            not lost,
            "not " + ", ".join(lost) if lost else f"all ahead of {other}",
            exact=False,
        )
    )
    return claims


def tuning_claim(found: dict[str, dict[str, Any]], where: str) -> Claim:
    """The lecture: with an adaptive method "you will not need to tune the learning rate"."""
    behind = {name: median(found[name]["test"]) - median(found[name]["first rate"]) for name in ADAPTIVE}
    return Claim(
        f"{where}: at the rates of the PyTorch slides (RMSprop: torch's default) the adaptive methods need no tuning (at most "
        "2 points behind their best)",
        max(behind.values()) <= 0.02,
        ", ".join(f"{name} {100 * points:.0f} points behind" for name, points in behind.items()),
        exact=False,
    )


# ---- SparseAdam against dense Adam -----------------------------------------------------------------------------------


def step_costs(
    vocabularies: Sequence[int], dim: int, texts: int, length: int, device: torch.device, samples: int
) -> list[dict]:
    """Rows, bytes and seconds of one training step (forward, backward, optimizer) by the size of the vocabulary."""
    rows = []
    labels = (torch.arange(texts, device=device) % 2).float()
    for vocabulary in vocabularies:
        words = zipf_words(vocabulary, texts, length, 0, device)
        steps = []
        for sparse in (False, True):
            vectors = WordVectors(vocabulary, dim, sparse, device)
            optimizer = (SparseAdam if sparse else Adam)([vectors.weight], lr=0.01)

            def work(vectors=vectors, optimizer=optimizer, words=words) -> None:
                vectors.backward(words, labels)
                optimizer.step()

            work()
            steps.append((work, gradient_bytes(vectors.weight.grad)))
        timed = compare(steps[0][0], steps[1][0], samples=samples)
        rows.append(
            {
                "vocabulary": vocabulary,
                "rows touched": words.unique().numel(),
                "dense gradient KiB": steps[0][1] / 1024,
                "sparse gradient KiB": steps[1][1] / 1024,
                "Adam µs a step": timed.a.seconds * 1e6,
                "SparseAdam µs a step": timed.b.seconds * 1e6,
                "times faster": timed.ratio,
            }
        )
    return rows


def sparse_claims(device: torch.device) -> list[Claim]:
    """What SparseAdam does with the rows that a batch does not name; in float64 on a small vocabulary."""
    vocabulary, dim, betas = 50, 4, (0.9, 0.999)
    labels = torch.tensor([1.0, 0.0, 1.0], device=device)

    def trained(
        sparse: bool, batches: list[torch.Tensor], eps: float = 1e-8
    ) -> tuple[WordVectors, list[dict[str, torch.Tensor]]]:
        vectors = WordVectors(vocabulary, dim, sparse, device, torch.float64)
        optimizer = (SparseAdam if sparse else Adam)([vectors.weight], lr=0.1, betas=betas, eps=eps)
        past = []
        for words in batches:
            vectors.backward(words, labels)
            optimizer.step()
            state = optimizer.state[vectors.weight]
            copied = {name: state[name].clone() for name in ("exp_avg", "exp_avg_sq")}
            past.append({"theta": vectors.weight.detach().clone(), "grad": vectors.weight.grad.to_dense(), **copied})
        return vectors, past

    first = torch.tensor([[1, 2, 3], [3, 4, 5], [1, 7, 8]], device=device)
    second = torch.tensor([[20, 21, 2], [22, 23, 24], [25, 26, 3]], device=device)
    everything = torch.arange(vocabulary + 1, device=device).clamp_(max=vocabulary - 1).view(3, 17)
    dense, sparse = (trained(kind, [first, second])[1] for kind in (False, True))
    gone = torch.tensor(sorted(set(first.flatten().tolist()) - set(second.flatten().tolist())), device=device)
    named = second.unique()
    never = torch.ones(vocabulary, dtype=torch.bool, device=device)
    never[torch.cat([first.flatten(), second.flatten()])] = False

    def moved(past: list[dict]) -> torch.Tensor:
        return (past[1]["theta"] != past[0]["theta"]).any(1).nonzero()[:, 0]

    def shrink(past: list[dict], name: str) -> torch.Tensor:
        return past[1][name][gone] / past[0][name][gone]

    both = [trained(kind, [everything] * 20, eps=1e-30)[0].weight.detach() for kind in (False, True)]
    apart = (both[0] - both[1]).abs().max().item()
    way = (both[0] - WordVectors(vocabulary, dim, False, device, torch.float64).weight.detach()).abs().min().item()
    faded = max(
        (shrink(dense, name) - beta).abs().max().item() for name, beta in zip(("exp_avg", "exp_avg_sq"), betas, strict=True)
    )
    kept = all(torch.equal(sparse[1][name][gone], sparse[0][name][gone]) for name in ("exp_avg", "exp_avg_sq"))
    coasting = (dense[1]["theta"][gone] - dense[0]["theta"][gone]).abs().min().item()
    return [
        Claim(
            "The sparse gradient holds the dense gradient's values, and zero everywhere else",
            torch.allclose(dense[0]["grad"], sparse[0]["grad"], rtol=0, atol=1e-15)
            and not sparse[0]["grad"][never].any() and bool(sparse[0]["grad"][first.unique()].all()),
        ),
        Claim(
            "A step of SparseAdam moves the rows of the words in the batch and no others",
            torch.equal(moved(sparse), named),
            f"{len(moved(sparse))} of {vocabulary} rows",
        ),
        Claim(
            "Dense Adam also moves rows that are not in the batch, by the momentum of earlier batches",
            coasting > 0 and set(moved(dense).tolist()) == set(named.tolist()) | set(gone.tolist()),
            f"{len(moved(dense))} of {vocabulary} rows, absent ones by at least {coasting:.1e}",
        ),
        Claim(
            "While a word is absent its moments shrink by β₁ and β₂ a step in dense Adam and rest in SparseAdam",
            kept and faded <= 1e-12,
            f"dense: β to {faded:.0e}; sparse: the same bits",
        ),
        Claim(
            "Where every batch has every word, and ε is next to nothing, SparseAdam takes Adam's steps, to 1e-12 (float64)",
            apart <= 1e-12 < way,
            f"{apart:.0e} after 20 steps",
        ),
    ]  # fmt: skip
