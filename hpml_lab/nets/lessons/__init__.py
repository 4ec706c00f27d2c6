"""To be read: the nets, SGD written by hand in three ways, and hundreds of XOR nets as one tensor program."""
