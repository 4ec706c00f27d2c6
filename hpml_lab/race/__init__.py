"""Topic 06: which optimizer? The lecture's comparison on three nets, sparse data, and schedules against adaptive methods."""
