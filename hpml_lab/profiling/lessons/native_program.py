"""The program that perf watches: one function works in Python, the other one in C. Standard library only, so that any Python
can run it: `python native_program.py SECONDS`."""

import sys
import time
import zlib


def brightened(pixels: bytes) -> bytes:
    """Work in Python: pixel by pixel."""
    brighter = bytearray()
    for pixel in pixels:
        brighter.append(min(255, pixel + 16))
    return bytes(brighter)


def packed(pixels: bytes) -> bytes:
    """Work in C: one call of zlib. A profiler of Python code sees a single box here."""
    return zlib.compress(pixels, level=6)


def prepare(seconds: float) -> None:
    """Brighten and pack an image, again and again."""
    pixels, end = bytes((7 * x * y + x) % 251 for y in range(128) for x in range(128)), time.monotonic() + seconds
    while time.monotonic() < end:
        packed(brightened(pixels))


if __name__ == "__main__":
    prepare(float(sys.argv[1]))
