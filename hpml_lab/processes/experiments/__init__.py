"""One file, or folder, for each experiment of notebook 07.

Next to them, what several of them use:
    parallel    the same work on threads and on processes
    start_cost  what it costs to start a worker
and what one experiment starts children with that need no torch. In the experiment's folder a spawned child would import the
whole experiment first, 1.8 s of processor time for torch and Matplotlib instead of 0.1:
    pool        the lecture's Process and Pool; what they call runs in child processes (process_and_pool)
    relay       a producer and a consumer with a ring between them; both run in child processes (producer_consumer)
"""
