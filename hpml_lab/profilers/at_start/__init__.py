"""Not imported as a package: Python finds `sitecustomize` here before the script that `hpml-lab profile` runs."""
