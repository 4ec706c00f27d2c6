"""What the notebook draws besides its experiments' figures."""
