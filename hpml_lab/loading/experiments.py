"""The experiments of notebook 08, in its order. They stand in four files: what is loaded, what overlaps, disks, decoders."""

