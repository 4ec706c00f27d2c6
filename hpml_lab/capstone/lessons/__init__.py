"""To be read: a first script from a scan to nodules, its fast stages, the detector, FROC, and what overlapping gains."""
