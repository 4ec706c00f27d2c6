"""To be read: masks, channels taken out of a net, and formats for matrices of which many elements are zero."""
