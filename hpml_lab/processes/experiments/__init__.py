"""One file for each experiment of notebook 07.

Next to them, what several of them use, and what runs in their child processes, which would import torch with an experiment:
    exchange    five routes to a consumer, which runs in a child process
    parallel    the same work on threads and on processes
    pool        the lecture's Process and Pool; what they call runs in child processes
    relay       a producer and a consumer with a ring between them; both run in child processes
    start_cost  what it costs to start a worker
"""
