"""For your own code: the graph of gradients and of a model's modules, drawn."""
