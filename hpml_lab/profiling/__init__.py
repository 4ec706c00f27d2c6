"""Topic 09, profiling: where the time of a program goes, by tools and by hand."""
