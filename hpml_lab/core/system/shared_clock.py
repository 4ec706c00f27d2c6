"""The system's monotonic clock, which all processes of a machine share: spans and deadlines of several of them compare."""

import time

CLOCK = time.monotonic  # seconds
