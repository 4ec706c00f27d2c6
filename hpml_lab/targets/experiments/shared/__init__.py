"""What several experiments use: small nets of many seeds, trained as one batched program."""
