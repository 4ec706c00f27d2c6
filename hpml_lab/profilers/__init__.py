"""Profilers, monitors and watchers of any program: what notebook 10 and `hpml-lab profile`, `monitor`, `bottleneck` run."""
