"""The programs that the notebook starts from: training scripts to copy."""
