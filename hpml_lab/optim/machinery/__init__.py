"""What the optimizer classes stand on: the base class, its options, tensors taken together, layers."""
