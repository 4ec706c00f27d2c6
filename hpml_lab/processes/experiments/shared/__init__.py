"""What runs in child processes and is used by experiments: apart from these, because a child would import torch with them."""
