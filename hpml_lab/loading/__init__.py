"""Topic 08: data loading and disks. Where a batch's time goes, and how to hide it."""
