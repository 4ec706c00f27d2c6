"""The optimizers, from scratch: formulas as printed, and classes that agree with torch.optim to the bit."""
