"""Topic 07: processes, threads and shared memory. What each start method, queue and lock costs, with its timeline."""
