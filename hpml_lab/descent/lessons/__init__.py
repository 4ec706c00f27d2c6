"""To be read: softmax regression by hand, descent with mini-batches, and the rate at which it diverges."""
