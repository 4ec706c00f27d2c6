"""To be read: number formats from their bits, sums in 16 bits, the two training loops, and the lecture's five recipes."""
