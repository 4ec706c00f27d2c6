"""What the function and line profilers look at: the lecture's random walk, and a program whose expensive line is known."""

import numpy as np


def step(steps: int, walkers: int, seed: int = 0) -> np.ndarray:
    """Moves of +1 or −1, each with probability 1/2: an int64 array (steps, walkers)."""
    return 2 * (np.random.default_rng(seed).random((steps, walkers)) < 0.5) - 1


def simulate(steps: int, walkers: int = 10_000) -> np.ndarray:
    """How many walkers stand at each position after each step: counts (steps, 59) for the positions −30 to 29."""
    moves = step(steps, walkers)
    positions = np.cumsum(moves, axis=0)
    bins = np.arange(-30, 30, 1)
    counts = np.vstack([np.histogram(positions[time, :], bins)[0] for time in range(steps)])
    return counts


def known_program(calls: int, power: int) -> int:
    """A program of two functions: `cheap` is called often and costs nothing, `expensive` is called once and costs all."""
    total = 0
    for number in range(calls):
        total += cheap(number)
    return total + expensive(power)


def cheap(number: int) -> int:
    return number % 7


def expensive(power: int) -> int:
    base = 3
    big = base**power  # the expensive line: a number of about power/2 digits, without a call of any function
    return big % 1000


def tight_loop(count: int) -> int:
    """A tight loop with a small function in it: the worst case for a profiler that stops at every call or line."""
    total = 0
    for number in range(count):
        total += cheap(number)
    return total
