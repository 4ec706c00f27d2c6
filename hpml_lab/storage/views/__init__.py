"""The notebook's picture of a sample's stages."""
