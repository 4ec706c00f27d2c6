"""For your own code: what a rank sends."""
