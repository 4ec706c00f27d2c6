"""To be read: where the elements of a tensor lie."""
