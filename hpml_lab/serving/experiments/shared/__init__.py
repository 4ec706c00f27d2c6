"""Our server as a program, apart from the experiments because a child would import torch with them; the models of a slice."""
