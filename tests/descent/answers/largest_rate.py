"""Answers to `largest-rate`: the steepest direction decides, and momentum allows more."""


def solution(eigenvalues, momentum):
    return 2 * (1 + momentum) / max(eigenvalues)


WRONG = [
    ("momentum-forgotten", lambda eigenvalues, momentum: 2 / max(eigenvalues)),
    ("smallest-eigenvalue", lambda eigenvalues, momentum: 2 * (1 + momentum) / min(eigenvalues)),
    ("nesterovs-boundary", lambda eigenvalues, momentum: 2 * (1 + momentum) / (1 + 2 * momentum) / max(eigenvalues)),
    ("no-overshooting", lambda eigenvalues, momentum: (1 + momentum) / max(eigenvalues)),
    ("momentum-slows", lambda eigenvalues, momentum: 2 * (1 - momentum) / max(eigenvalues)),
    ("momentum-divides", lambda eigenvalues, momentum: 2 / max(eigenvalues) / (1 - momentum)),
    ("mean-eigenvalue", lambda eigenvalues, momentum: 2 * (1 + momentum) * len(eigenvalues) / sum(eigenvalues)),
    ("polyaks-best", lambda eigenvalues, momentum: 4 / (max(eigenvalues) ** 0.5 + min(eigenvalues) ** 0.5) ** 2),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / eigenvalues[-1] + 1),
    ("returns-nothing", lambda eigenvalues, momentum: None),
]
