"""Room of notebook 04: gradient descent, its learning rate, momentum, Nesterov, and what lies in the way."""
