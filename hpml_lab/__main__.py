"""`python -m hpml_lab` is `hpml-lab`."""

import sys

from hpml_lab.cli import main

sys.exit(main())
