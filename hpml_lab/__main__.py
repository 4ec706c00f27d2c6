"""`python -m hpml_lab` is `hpml-lab`."""

import sys

from hpml_lab.cli import as_program

sys.exit(as_program())
