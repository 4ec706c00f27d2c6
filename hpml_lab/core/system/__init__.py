"""The machine and the process: device, facts, files, child processes that always end, programs, errors meant to be read."""
