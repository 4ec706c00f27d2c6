"""Honest measurements: times in turns with placebo and interval, operators, bytes and memory counted, spans on a clock."""
