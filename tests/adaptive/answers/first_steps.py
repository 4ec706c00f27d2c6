"""Answers to `first-steps`: Adagrad's and Adam's α, Adadelta's √(ε/(1 − ρ)), RMSprop's α/√(1 − ρ)."""

solution = (0.01, 0.00316, 0.1, 0.001)

WRONG = [
    ("scales-with-gradient", (10.0, 1000.0, 10.0, 1.0)),
    ("scales-with-gradient", (0.01, 1000.0, 0.1, 0.001)),
    ("average-taken-as-whole", (0.01, 0.00316, 0.01, 0.001)),
    ("average-taken-as-whole", (0.01, 0.001, 0.1, 0.001)),
    ("correction-forgotten", (0.01, 0.00316, 0.1, 0.00316)),
    ("rate-as-length", (0.01, 1.0, 0.1, 0.001)),
    ("root-forgotten", (1e-5, 0.00316, 0.1, 0.001)),
    ("wrong-value", (0.02, 0.00316, 0.1, 0.001)),
    ("not-four-numbers", (0.01, 0.1, 0.001)),
    ("signed", (-0.01, -0.00316, -0.1, -0.001)),
]
